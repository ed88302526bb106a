"""Mandarin sentences for a synthetic AISHELL: dates, prices, journeys, errands, weather.

Words are such that each character has one reading and its sound and its neighbours tell which
character it is.
"""

import random
import re
from pathlib import Path
from typing import Dict, List

# What stands in braces is one of the list of that name.
GRAMMAR: Dict[str, List[str]] = {
    "sentence": [
        "{time} {person} 坐 火车 去 {city}",
        "{time} {person} 在 {place} {activity}",
        "{day} 是 {date} 星期 {weekday}",
        "{person} 买 {goods} {price}",
        "现在 是 {daytime} {clock}",
        "{city} 的 {person} {day} {activity}",
        "{city} {time} {weather}",
        "{time} {person} 去 {place}",
        "{person} 买 {goods}",
        "{date}",
        "{clock}",
        "{price}",
        "{digit} {digit} {digit} {digit} {digit}",
    ],
    "time": ["{day}", "{day} {daytime}", "星期 {weekday}"],
    "day": ["今天", "明天", "昨天"],
    "daytime": ["上午", "下午", "晚上"],
    "weekday": ["一", "二", "三", "四", "五", "六", "天"],
    "date": ["{month} 月 {day_of_month} 号"],
    "month": ["{one}", "十", "十 一", "十 二"],
    "day_of_month": ["{one}", "十 {one}", "二十 {one}"],
    "clock": ["{hour} 点 {minute} 分"],
    "hour": ["{one}", "十", "十 一", "十 二"],
    "minute": ["十 {one}", "二十 {one}", "三十 {one}", "四十 {one}", "五十 {one}"],
    "price": ["{number} 块 钱"],
    "number": ["{one} 百 {one} 十 {one}", "{one} 百 零 {one}", "{one} 十 {one}"],
    "one": ["一", "二", "三", "四", "五", "六", "七", "八", "九"],
    "digit": ["零", "一", "二", "三", "四", "五", "六", "七", "八", "九"],
    "person": ["我", "老师", "妈妈", "爸爸", "朋友"],
    "city": ["北京", "上海", "南京"],
    "place": ["学校", "公园", "家"],
    "activity": ["看 书", "学习", "喝 茶"],
    "weather": ["下雨", "很 冷"],
    "goods": ["{count} 本 书", "{count} 杯 茶"],
    "count": ["一", "三", "四", "五", "六", "七", "八", "九", "十"],
}

# Initials and finals of all of its words, in the notation of AISHELL-1's lexicon.
LEXICON = Path(__file__).with_name("synthetic_lexicon.txt").read_text(encoding="utf-8")
WORDS = [line.split()[0] for line in LEXICON.splitlines()]


class Sentences:
    """Draws sentences; of each list the items come evenly, in random order.

    So a few hundred sentences hold every word.
    """

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._lists = {**GRAMMAR, "word": WORDS}
        self._left: Dict[str, List[str]] = {name: [] for name in self._lists}
        self._last = dict.fromkeys(self._lists, "")

    def draw(self, name: str = "sentence") -> str:
        """Words with single spaces between."""
        left = self._left[name]
        if not left:
            left += self._rng.sample(self._lists[name], len(self._lists[name]))
            # No word twice in a row: nobody asks mother to call mother.
            if left[-1] == self._last[name]:
                left.reverse()
        self._last[name] = left.pop()
        return re.sub(r"{(\w+)}", lambda match: self.draw(match[1]), self._last[name])

    def draw_words(self, count: int) -> str:
        """Words that make no sentence."""
        return " ".join(self.draw("word") for _ in range(count))
