# Sourced by prepare.sh and run.sh: what becomes of the speech, and how much of it may be unusable.
feature_options() { # feature_options SPEEDS
  option features one:fbank\|fbank_pitch fbank "what speech becomes; train with the same data.features"
  option storage one:lilcom\|numpy\|none lilcom "of features; none: train with data.on_the_fly=true"
  option speeds numbers "$1" "speeds at which the training speech is used once more"
  option max-bad-share number 0.01 "of the utterances may be unusable; more of them are an error"
}
