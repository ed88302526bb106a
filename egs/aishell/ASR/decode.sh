#!/usr/bin/env bash
# Decodes the dev and test sets of AISHELL-1, one stage for each search, and prints the table of character error rates.
corpus=aishell sets="dev test" unit=char
. "$(dirname "${BASH_SOURCE[0]}")/../../../tools/stages/decode.sh"
