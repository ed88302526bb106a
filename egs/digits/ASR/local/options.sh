# Options of prepare.sh that run.sh hands on to it.
option train-size count 4000 "utterances for training"
option dev-size count 104 "utterances of the dev set"
option test-size count 240 "utterances of the test set"
