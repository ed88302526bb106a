#!/usr/bin/env bash
# Trains a Conformer transducer on LibriSpeech. An interrupted training goes on where it stopped; --force true starts anew.
corpus=librispeech
. "$(dirname "${BASH_SOURCE[0]}")/../../../tools/stages/train.sh"
