# Options of prepare.sh that run.sh hands on to it.
option dl-dir path download "where AN4 is (the directory itself or its parent), or is downloaded to"
