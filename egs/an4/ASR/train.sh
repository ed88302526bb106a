#!/usr/bin/env bash
# Trains a Conformer transducer on AN4. An interrupted training goes on where it stopped; --force true starts anew.
corpus=an4
. "$(dirname "${BASH_SOURCE[0]}")/../../../tools/stages/train.sh"
