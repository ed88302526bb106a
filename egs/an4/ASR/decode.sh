#!/usr/bin/env bash
# Decodes the dev and test sets of AN4, one stage for each search, and prints the table of word error rates.
corpus=an4 sets="dev test" average=3 # of eight long epochs
. "$(dirname "${BASH_SOURCE[0]}")/../../../tools/stages/decode.sh"
