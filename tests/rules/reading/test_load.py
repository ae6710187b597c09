"""Where rules come from: files and folders, lists beside them, and dicts."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import RulesError
from penstock.rules.problems import Place, Problems
from penstock.rules.reading.dict_tree import read_dict
from penstock.rules.reading.parse import load_files, load_mapping, parse_text
from penstock.rules.reading.tree import Bounds


def refused(*args: Any, **kwargs: Any) -> list[str]:
    with pytest.raises(RulesError) as caught:
        load_files(*args, **kwargs)
    return [str(problem) for problem in caught.value.problems]


def test_lists_of_a_domain() -> None:
    api = parse_text(
        "domain: api\nallow: {ip: [10.0.0.0/8, '::1'], user: [admin, 7], host: }\n"
        "deny: {ip: [10.6.6.6]}"
    )
    assert set(api.allow) == {"ip", "user"}
    assert "10.1.2.3" in api.allow["ip"]
    assert "7" in api.allow["user"]
    assert "10.6.6.6" in api.deny["ip"]


def test_lists_from_files(tmp_path: Path) -> None:
    (tmp_path / "more").mkdir()
    (tmp_path / "more/trusted.txt").write_bytes(
        "\ufeff# ours\n10.0.0.0/8\n\n  admin  # the boss\nwith#in\n#out\n".encode()
    )
    (tmp_path / "r.yaml").write_text(
        "domain: api\nallow: {ip: [1.2.3.4, {file: more/trusted.txt}]}\n"
        "descriptors: [{key: a, limits: 5/day, deny: [{file: ./more/../more/trusted.txt}]}]\n"
    )
    rules = load_files([tmp_path / "r.yaml"])
    api = rules.domains["api"]
    assert api.allow["ip"].entries == ("1.2.3.4", "10.0.0.0/8", "admin", "with#in")
    assert api.steps[0].deny is not None
    assert api.steps[0].deny.entries == ("10.0.0.0/8", "admin", "with#in")
    # A watcher must know of it, too.
    assert rules.files == (str(tmp_path / "r.yaml"), str(tmp_path / "more/trusted.txt"))


def test_a_long_list(tmp_path: Path) -> None:
    (tmp_path / "long.txt").write_text("\n".join(f"user-{i}" for i in range(100_000)))
    (tmp_path / "r.yaml").write_text(
        "domain: api\ndescriptors: [{key: a, limits: 5/day, allow: [{file: long.txt}]}]\n"
    )
    allow = load_files([tmp_path]).domains["api"].steps[0].allow
    assert allow is not None
    assert len(allow) == 100_000
    assert "user-99999" in allow


def test_a_list_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "latin.txt").write_bytes(b"ok\n\xe4\n")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "r.yaml").write_text(
        "domain: api\nallow:\n  ip: [{file: latin.txt}, {file: pipe}, {file: /dev/zero}]\n"
        '  user: [{file: "a\\0b"}, {file: latin.txt}]\n'
    )
    at = f"{tmp_path}/r.yaml"
    assert [told.replace(str(tmp_path), "") for told in refused([at])] == [
        "/r.yaml:3:15: '/latin.txt' is not UTF-8 text: see its line 2",
        "/r.yaml:3:34: '/pipe' is not a file",
        "/r.yaml:3:48: '/dev/zero' is not a file",
        "/r.yaml:4:17: cannot read '/a\\x00b': embedded null byte",
    ]


def write(folder: Path, **files: str) -> None:
    for name, text in files.items():
        (folder / f"{name}.yaml").write_text(text)


def test_a_folder(tmp_path: Path) -> None:
    write(tmp_path, b="domain: b", a="domain: a")
    (tmp_path / "c.yml").write_text("domain: c")
    (tmp_path / ".hidden.yaml").write_text("not: rules")
    (tmp_path / "notes.txt").write_text("not: rules")
    # As Kubernetes mounts a ConfigMap.
    (tmp_path / "..2026_01").mkdir()
    write(tmp_path / "..2026_01", d="domain: d")
    (tmp_path / "..data").symlink_to("..2026_01")
    (tmp_path / "d.yaml").symlink_to("..data/d.yaml")
    (tmp_path / "folder.yaml").mkdir()
    rules = load_files([tmp_path])
    assert list(rules.domains) == ["a", "b", "c", "d"]
    assert [Path(file).name for file in rules.files] == ["a.yaml", "b.yaml", "c.yml", "d.yaml"]


def test_one_path_alone(tmp_path: Path) -> None:
    write(tmp_path, a="domain: a")
    assert list(load_files(str(tmp_path / "a.yaml")).domains) == ["a"]
    assert list(load_files([tmp_path, tmp_path / "a.yaml"]).domains) == ["a"]


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    write(tmp_path, ok="domain: ok")
    (tmp_path / "bytes.yaml").write_bytes(b"domain: \xff")
    (tmp_path / "empty").mkdir()
    names = ["empty", "none.yaml", "bytes.yaml", "ok.yaml"]
    problems = refused([tmp_path / name for name in names])
    assert [text.replace(f"{tmp_path}/", "") for text in problems] == [
        "bytes.yaml:1:9: the file is not UTF-8 text: byte 0xff cannot stand here",
        "empty:1:1: no *.yaml or *.yml in this folder",
        "none.yaml:1:1: cannot read 'none.yaml': No such file or directory",
    ]
    assert refused([]) == ["<rules>:1:1: no file was named"]


def test_a_file_that_is_too_large(tmp_path: Path) -> None:
    path = tmp_path / "large.yaml"
    path.touch()
    os.truncate(path, 64_000_001)
    assert refused([path]) == [f"{path}:1:1: {str(path)!r} is larger than 64 MB"]


def test_a_folder_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: Path) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "iterdir", refuse)
    assert refused([tmp_path]) == [f"{tmp_path}:1:1: cannot read the folder: Permission denied"]


def test_the_problems_of_all_files_are_told_at_once(tmp_path: Path) -> None:
    write(tmp_path, a="domain: a\nx: 1", b="domian: b", c="a: [", d="domain: d")
    assert [text.replace(f"{tmp_path}/", "").split(": ")[0] for text in refused([tmp_path])] == [
        "a.yaml:2:1", "b.yaml:1:1", "c.yaml:1:5",
    ]  # fmt: skip


STEP_A, STEP_B = "descriptors: [{key: a, limits: 5/day}]", "descriptors: [{key: b, limits: 5/day}]"


def test_a_domain_in_two_files(tmp_path: Path) -> None:
    write(tmp_path, one=f"domain: x\n{STEP_A}", two=f"{STEP_B}\ndomain: x")
    assert refused([tmp_path]) == [
        f"{tmp_path}/two.yaml:2:9: the domain 'x' a second time: first at {tmp_path}/one.yaml:1:9"
    ]
    domain = load_files([tmp_path], merge_domains=True).domains["x"]
    assert [step.key for step in domain.steps] == ["a", "b"]
    assert domain.place == Place(f"{tmp_path}/one.yaml", 1, 9)


def test_merging_finds_what_two_files_say_twice(tmp_path: Path) -> None:
    write(tmp_path, one=f"domain: x\n{STEP_A}", two=f"domain: x\n{STEP_A}")
    assert refused([tmp_path], merge_domains=True) == [
        f"{tmp_path}/two.yaml:2:15: the step 'a' a second time on this level:"
        f" first at {tmp_path}/one.yaml:2:15"
    ]


def test_merging_joins_lists_and_keeps_defaults_apart(tmp_path: Path) -> None:
    write(
        tmp_path,
        one=f"domain: x\nallow: {{ip: [a], user: [u]}}\n{STEP_A}",
        two=f"domain: x\nallow: {{ip: [b]}}\ndeny: {{ip: [c]}}\n{STEP_B}\n"
        "defaults: {algorithm: sliding_log}",
    )
    domain = load_files([tmp_path], merge_domains=True).domains["x"]
    assert {key: values.entries for key, values in domain.allow.items()} == {
        "ip": ("a", "b"), "user": ("u",),
    }  # fmt: skip
    assert domain.deny["ip"].entries == ("c",)
    rules = [step.rule for step in domain.steps]
    assert [str(rule.limits[0].limit) for rule in rules if rule] == ["5/day", "5/day sliding_log"]


def test_merging_warns_of_what_another_file_hides(tmp_path: Path) -> None:
    write(
        tmp_path,
        one="domain: x\ndescriptors: [{key: a, value: '*', limits: 5/day}]",
        two=f"domain: x\n{STEP_A}",
    )
    problems = Problems()
    load_files([tmp_path], merge_domains=True, problems=problems)
    assert [str(warning) for warning in problems.warnings] == [
        f"{tmp_path}/two.yaml:2:15: this step never matches: '*' at {tmp_path}/one.yaml:2:15"
        " takes all of its values"
    ]


def test_a_dict() -> None:
    api = load_mapping(
        {
            "domain": "api",
            "descriptors": [
                {"key": "a", "value": 7, "limits": ("5/day", {"limit": "9/hour", "burst": 10})},
                {
                    "key": "b", "value": None, "shadow_mode": True,
                    "split": {"percent": 0.5, "limits": "5/day"}, "metadata": {"x": [1, 1.5, "1"]},
                },
            ],
        }
    )  # fmt: skip
    one, two = api.steps
    assert one.rule is not None
    assert two.rule is not None
    assert [limit.name for limit in one.rule.limits] == [
        "api/a=7 5/day", "api/a=7 9/hour burst 10",
    ]  # fmt: skip
    assert (one.value, two.value, two.rule.shadow) == ("7", None, True)
    assert two.rule.metadata == {"x": [1, 1.5, "1"]}
    assert two.rule.split is not None
    assert two.rule.split.percent == 0.5


def deep() -> dict[str, Any]:
    circle: dict[str, Any] = {"domain": "api"}
    circle["descriptors"] = [circle]
    return circle


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ({}, ["<rules>: 'domain' is missing"]),
        (["domain"], ["<rules>: a file of rules must be a mapping, not a list"]),
        ("domain", ["<rules>: a file of rules must be a mapping, not 'domain'"]),
        ({"domain": "a", "descriptors": [{"key": "b"}, {"kee": "c"}]},
         ["<rules>: descriptors[1].kee: unknown key 'kee' (did you mean 'key'?)"]),
        ({"domain": "a", "descriptors": [{"key": "b"}] * 2},
         ["<rules>: descriptors[1]: the step 'b' a second time on this level:"
          " first at <rules>: descriptors[0]"]),
        ({"domain": "a", "descriptors": [{"key": "b", "limits": ["5/day"] * 2}]},
         ["<rules>: descriptors[0].limits[1]: the limit 'a/b 5/day' a second time:"
          " first at <rules>: descriptors[0].limits[0]"]),
        ({"domain": "a", 5: 6, "x": b"y"}, ["<rules>: a key must be a text, not '5'",
                                            "<rules>: x: bytes is nothing that YAML could say"]),
        ({"domain": {1, 2}}, ["<rules>: domain: set is nothing that YAML could say"]),
        ({"domain": "a", "descriptors": [{"key": 10**5000}]},
         ["<rules>: descriptors[0].key: int is nothing that YAML could say"]),
        (deep(),
         ["<rules>: " + ".".join(["descriptors[0]"] * 25) + ": nested deeper than 50 levels"]),
    ],
)  # fmt: skip
def test_a_dict_that_is_wrong(rules: Any, expected: list[str]) -> None:
    with pytest.raises(RulesError) as caught:
        load_mapping(rules)
    assert [str(problem) for problem in caught.value.problems] == expected


def test_the_problems_of_a_dict_come_in_its_order() -> None:
    steps = [{"key": f"k{i}", "cost": 0} for i in range(12)]
    with pytest.raises(RulesError) as caught:
        load_mapping({"domain": "a", "descriptors": steps})
    places = [str(problem).split(": ")[1] for problem in caught.value.problems]
    assert places == [f"descriptors[{i}].cost" for i in range(12)]


def test_a_dict_that_is_too_large() -> None:
    problems = Problems()
    assert read_dict({"a": [1, 2, 3]}, "f", problems, Bounds(nodes=5)) is not None
    assert read_dict({"a": [1, 2, 3]}, "f", problems, Bounds(nodes=4)) is None
    assert [str(told) for told in problems.errors] == ["f: a[2]: more than 4 nodes"]
