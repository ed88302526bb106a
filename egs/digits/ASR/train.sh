#!/usr/bin/env bash
# Trains a Conformer transducer on the digits. An interrupted training goes on where it stopped; --force true starts anew.
corpus=digits
. "$(dirname "${BASH_SOURCE[0]}")/../../../tools/stages/train.sh"
