# Options of prepare.sh that run.sh hands on to it.
option dl-dir path download "where LibriSpeech is (the directory itself or its parent), or is downloaded to"
option full-libri bool true "train on all 960 hours; false: on train-clean-100"
option parts string "" "of LibriSpeech, to be prepared, instead of what --full-libri says"
option subset-hours number 0 "hours of training speech, drawn at random (0: all)"
option vocab-sizes counts "500 5000" "numbers of word pieces, each kept in data/lang_bpe_N"
option musan bool false "fetch and prepare MUSAN, for data.noise_cuts"
option rirs bool false "fetch and prepare RIRS_NOISES, for data.rir_cuts"
option arpa file "" "n-grams of words for the searches with LG, instead of those of the training text"
