"""Translation of messages that are copied from a csv file with another language."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache, partial

from probe_precheck.model import BEYOND_ROUNDING, FRAGILE_MESSAGE, Message, Status

SENTENCE_TRANSLATIONS = (
    ("没有可比对的输出。", "It returns nothing that can be compared."),
    ("未能保存数据: {}", "Its data could not be saved: {}"),
    ("bench与npu输出的shape不同: {}", "bench and npu output shape differ: {}"),
    ("输出没有元素 (no elements)", "no elements"),
    ("inf/nan不一致 (inf/nan differ)", "inf/nan differ"),
    ("一侧的数据全为0，余弦相似度无意义", "One side is all zero: there is no cosine"),
    tuple(BEYOND_ROUNDING),
    tuple(FRAGILE_MESSAGE),
    ("随机数不逐元素比较", "Random numbers are not compared element by element"),
    (
        "两侧随机数的分布不同（不逐元素比较）",
        "the random numbers of both sides are distributed differently (they are not compared element by element)",
    ),
    ("余弦相似度不大于{}，最大绝对误差为{}。", "The cosine is not above {}; the max abs error is {}."),
    ("相对误差小于{}的元素占比不大于{}。", "The share of relative errors below {} is not above {}."),
    ("{}类型的数据仅以二进制一致错误率判定", "{} is judged by its error rate only"),
    (
        "NPU上topk的入参sorted=False不生效，始终返回有序结果，而CPU返回无序结果；如用了sorted=False，请先排除该差异。",
        "On the NPU topk ignores sorted=False and returns sorted values, on the CPU it does not: where the "
        "call has sorted=False, that may be the difference.",
    ),
    (
        "没有NPU，设备侧运行的是该融合算子的组合实现。",
        "There is no NPU: the device ran the composed definition.",
    ),
    ("两侧均已关闭dropout。", "Its dropout is off on both sides."),
    (
        "输出数据类型的精度过低，按应有类型判定: {}。",
        "Its dtype is narrower than torch's, by which it is judged: {}.",
    ),
    (
        "测试对象为真实数据的输出；在本设备上重新运行，结果一致。",
        "The recorded values were tested; run again here they are the same, up to rounding.",
    ),
    (
        "未记录输出数据，测试对象为在本设备上重新运行的结果。",
        "The values of the outputs were not recorded: those of running the call again here were tested.",
    ),
    (
        "测试对象为真实数据的输出；无法在本设备上重新运行: {}",
        "The recorded values were tested; the call could not be run again here: {}",
    ),
    (
        "测试对象为真实数据的输出；在本设备上重新运行，结果不同 ({})。",
        "The recorded values were tested; NOT REPRODUCED HERE: the results of a second run differ beyond rounding "
        "({}), so the recorded values depend on more than the recorded inputs.",
    ),
)
"""Sentences of details files in Chinese and English, as the runners and rules of probe write them."""


def translate(text: str, language: str) -> str:
    """Return a message with its known sentences translated to ``language``, which is ``zh`` or ``en``."""
    for pattern, replacement in _compile_patterns(language):
        text = pattern.sub(replacement, text)
    return text


def select_statuses(statuses: Sequence[str], text: str) -> tuple[str, ...]:
    """Return the statuses that count for a row. Its message on rounding may change them (docs/standards.md#status)."""
    if find_beyond_rounding_message(text):
        return (*statuses, Status.ERROR.value)
    return (Status.WARNING.value,) if _find_message(FRAGILE_MESSAGE, text) else tuple(statuses)


def _find_message(message: Message, text: str) -> Message | None:
    """Return a message with the numbers from the text of a cell; None if the text does not contain the message."""
    for sentence in message:
        match = re.search("(.*?)".join(map(re.escape, sentence.split("{}"))), text)
        if match:
            return Message(*(template.format(*match.groups()) for template in message))
    return None


find_beyond_rounding_message = partial(_find_message, BEYOND_ROUNDING)
"""Function that returns the message on an error beyond rounding in a text; None if there is none."""


@cache
def _compile_patterns(language: str) -> tuple[tuple[re.Pattern[str], str], ...]:
    """Return each sentence of the other language as a pattern, and its replacement."""
    patterns = []
    for chinese, english in SENTENCE_TRANSLATIONS:
        source, target = (chinese, english) if language == "en" else (english, chinese)
        pattern = r"(?<!\()" + "(.*?)".join(map(re.escape, source.split("{}")))
        pieces = target.split("{}")
        replacement = pieces[0] + "".join(rf"\g<{i}>{piece}" for i, piece in enumerate(pieces[1:], 1))
        patterns.append((re.compile(pattern), replacement))
    return tuple(patterns)
