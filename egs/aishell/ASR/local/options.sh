# Options of prepare.sh that run.sh hands on to it.
option dl-dir path download "where AISHELL-1 is (the directory itself or its parent), or is downloaded to"
option subset-hours numbers 0 "hours of training speech, drawn at random (0: all)"
