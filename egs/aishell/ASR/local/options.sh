# Options of prepare.sh that run.sh hands on to it.
option dl-dir path download "where AISHELL-1 is (the directory itself or its parent), or is downloaded to"
option subset-hours number 0 "hours of training speech, drawn at random (0: all)"
option musan bool false "fetch and prepare MUSAN, for data.noise_cuts"
option rirs bool false "fetch and prepare RIRS_NOISES, for data.rir_cuts"
option arpa file "" "n-grams of words for the searches with LG, instead of those of the training text"
