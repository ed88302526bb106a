#!/usr/bin/env bash
# Trains, decodes and scores attention mechanisms with equal budgets, each with every seed. What is finished stays
# finished: results/compare.jsonl is added to, and the table and the plot are made of it.
corpus=librispeech sets="dev test-clean test-other"
. "$(dirname "${BASH_SOURCE[0]}")/../../../tools/stages/compare.sh"
