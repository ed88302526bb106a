#!/usr/bin/env bash
# Trains, decodes and scores attention mechanisms with equal budgets, each with every seed. What is finished stays
# finished: results/compare.jsonl is added to, and the table and the plot are made of it.
corpus=digits sets="dev test" average=2
. "$(dirname "${BASH_SOURCE[0]}")/../../../tools/stages/compare.sh"
