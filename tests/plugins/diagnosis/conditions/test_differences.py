"""Conditions that differ between two runs."""

from __future__ import annotations

from probe_diagnosis.conditions.differences import find_condition_differences
from probe_diagnosis.conditions.file import RunConditions

FACTS = {
    "pytorch": {"versions": {"torch": "2.1", "numpy": "2.0"}, "devices": {"instruction_set": "AVX2"}},
    "mindspore": {"versions": {"mindspore": "2.10", "numpy": "1.26"}, "devices": {"device_target": "CPU"}},
}


def run(name: str, framework: str, **variables: str) -> RunConditions:
    return RunConditions({**FACTS[name], "environment": variables}, framework=framework)


def names(target: RunConditions, golden: RunConditions) -> set[str]:
    return {f"{one.kind.value} {one.name}" for one in find_condition_differences(target, golden)}


def test_a_missing_library_is_a_difference_within_a_framework() -> None:
    assert names(run("pytorch", "pytorch"), run("mindspore", "pytorch")) == {
        "versions torch", "versions mindspore", "versions numpy", "devices instruction_set",
        "devices device_target",
    }  # fmt: skip


def test_two_frameworks_share_only_what_both_list_and_the_environment() -> None:
    target, golden = run("pytorch", "pytorch", OMP_NUM_THREADS="1"), run("mindspore", "mindspore")
    assert names(target, golden) == {"versions numpy", "environment OMP_NUM_THREADS"}


def gpu_run(*devices: str, **settings: bool) -> RunConditions:
    return RunConditions({"devices": dict.fromkeys(devices, "a device"), "numerics": settings}, framework="pytorch")


def test_a_setting_of_a_device_has_no_effect_in_a_run_without_this_device() -> None:
    on_gpu, on_cpu = gpu_run("cuda", cudnn_allow_tf32=True), gpu_run(cudnn_allow_tf32=True)
    assert names(on_gpu, on_cpu) == {"devices cuda", "numerics cudnn_allow_tf32"}
    assert names(on_gpu, on_gpu) == names(on_cpu, gpu_run(cudnn_allow_tf32=False)) == set()


def test_a_setting_of_a_device_is_compared_if_devices_are_not_known() -> None:
    allowed, refused = (RunConditions({"numerics": {"cudnn_allow_tf32": value}}) for value in (True, False))
    (difference,) = find_condition_differences(allowed, refused)
    assert (difference.name, difference.target, difference.golden) == ("cudnn_allow_tf32", True, False)


def test_a_setting_of_a_device_is_stated_as_both_runs_have_it() -> None:
    runs = (gpu_run("cuda", cudnn_allow_tf32=value) for value in (True, False))
    (difference,) = find_condition_differences(*runs)
    assert (difference.target, difference.golden) == (True, False)


def test_a_setting_of_a_device_that_is_off_is_no_difference() -> None:
    assert names(gpu_run("cuda", cuda_matmul_allow_tf32=False), gpu_run(cuda_matmul_allow_tf32=False)) == {
        "devices cuda"
    }
