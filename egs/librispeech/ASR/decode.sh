#!/usr/bin/env bash
# Decodes the dev and test sets of LibriSpeech, one stage for each search, and prints the table of word error rates.
corpus=librispeech sets="dev test-clean test-other"
. "$(dirname "${BASH_SOURCE[0]}")/../../../tools/stages/decode.sh"
