#!/usr/bin/env bash
# Decodes the dev and test sets of the digits, one stage for each search, and prints the table of word error rates.
corpus=digits sets="dev test" average=2
. "$(dirname "${BASH_SOURCE[0]}")/../../../tools/stages/decode.sh"
