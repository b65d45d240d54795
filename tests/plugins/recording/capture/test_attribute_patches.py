"""Replacement of attributes and their restoration."""

from __future__ import annotations

from probe_recording.capture.attribute_patches import AttributePatches


class Base:
    name = "base"


class Child(Base):
    pass


def test_restore_all_removes_attribute_that_was_inherited() -> None:
    patches = AttributePatches()
    patches.replace(Child, "name", "wrapper")
    assert patches and Child.name == "wrapper"
    patches.restore_all()
    assert not patches and "name" not in vars(Child) and Child.name == "base"


def test_restore_all_unwinds_several_wrappers() -> None:
    patches = AttributePatches()
    patches.replace(Base, "name", "first")
    patches.replace(Base, "name", "second")
    patches.restore_all()
    assert Base.name == "base"


def test_restore_keeps_other_attributes_replaced() -> None:
    class Holder:
        left, right = 1, 2

    patches = AttributePatches()
    patches.replace(Holder, "left", 3)
    patches.replace(Holder, "left", 4)
    patches.replace(Holder, "right", 5)
    patches.restore(Holder, "left")
    assert (Holder.left, Holder.right) == (1, 5)
    patches.restore_all()
    assert Holder.right == 2


def test_restore_all_leaves_wrapper_that_other_code_replaced() -> None:
    class Holder:
        value = 1

    patches = AttributePatches()
    patches.replace(Holder, "value", 2)
    Holder.value = 3
    patches.restore_all()
    assert Holder.value == 3
