#!/usr/bin/env bash
# Trains a Conformer transducer on AISHELL-1. An interrupted training goes on where it stopped; --force true starts anew.
corpus=aishell
. "$(dirname "${BASH_SOURCE[0]}")/../../../tools/stages/train.sh"
