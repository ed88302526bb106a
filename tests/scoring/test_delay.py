"""Delays of tokens against another hypothesis."""

from icefall_attn.scoring.delay import Delays, Emission, emission_delays


def test_tokens_that_both_have_are_compared():
    reference = Emission([7, 8, 9, 7], [2, 5, 6, 11])
    assert emission_delays(Emission([7, 8, 9, 7], [3, 9, 10, 10]), reference) == Delays(
        [1, 4, 4, -1], 1, -1
    )
    # 8 is missing, 5 stands for 9, 6 comes at the end
    found = emission_delays(Emission([7, 5, 7, 6], [3, 7, 13, 14]), reference)
    assert found == Delays([1, 2], 1, None)
    found = emission_delays(Emission([8, 9, 7], [5, 6, 11]), reference)
    assert found == Delays([0, 0, 0], None, 0)


def test_nothing_said():
    nothing, something = Emission([], []), Emission([4], [0])
    for pair in ((nothing, nothing), (nothing, something), (something, nothing)):
        assert emission_delays(*pair) == Delays([], None, None)
