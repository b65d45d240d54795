"""The records of a session: their order, their texts, their call stacks and modules."""

from __future__ import annotations

import json

from probe_recording.run_directory.record_table import RecordTable
from probe_recording.values.leaves import encode
from probe_recording.values.tensor_store import Entry


def encode_entry(entry: Entry) -> str:
    return encode(entry.fields)


def test_open_records_are_in_the_order_of_their_last_values() -> None:
    table = RecordTable(has_parents=False)
    gradient = table.open("b.0.backward", {"input": [None]}, None)
    assert table.open("b.0.backward", {}, None) is gradient
    assert table.list_arrived() == []
    table.note_arrival(gradient)
    table.add(Entry("a.0.forward", {"output": [1]}), None, None)
    assert table.has("a.0.forward") and table.has("b.0.backward") and not table.has("c")
    lines = table.encode_lines(table.list_arrived(), encode_entry)
    assert [json.loads(f"{{{line}}}") for line in lines] == [
        {"b.0.backward": {"input": [None]}}, {"a.0.forward": {"output": [1]}},
    ]  # fmt: skip
    gradient.fields["input"] = [2]
    table.note_arrival(gradient)
    lines = table.encode_lines(table.list_arrived(), encode_entry)
    assert [*json.loads(f"{{{lines[1]}}}").values()] == [{"input": [2]}]


def test_complete_records_keep_their_text_and_release_their_fields() -> None:
    table = RecordTable(has_parents=False)
    entry = Entry("a.0.forward", {"output": [1]})
    table.add(entry, None, None)
    lines = table.encode_lines([], encode_entry)
    assert entry.fields == {} and table.encode_lines([], encode_entry) == lines


def test_a_module_precedes_the_records_inside_it() -> None:
    table = RecordTable(has_parents=True)
    table.add(Entry("a.0.forward", {}), None, "Module.m.forward.0")
    assert [*json.loads(table.encode_parents())] == ["Module.m.forward.0", "a.0.forward"]
    assert table.get_parent("a.0.forward") == "Module.m.forward.0" and table.get_parent("b") is None
