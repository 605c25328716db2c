# SPDX-License-Identifier: Apache-2.0
"""What a template of the configuration gives its sandboxes."""
from helpers import Box

LANGUAGES = {
    "languages": {"shout": {"extensions": ["up"], "command": ["tr", "a-z", "A-Z"]}},
    "templates": {
        "own": {
            "languages": {
                "sh": {"command": ["echo", "not sh:", "{code}"]},
                "quiet": {"extensions": ["up"], "command": ["true"]},
            }
        }
    },
}


def made(m, template, name):
    """A sandbox of a template, running."""
    (m / ".sbxfs/templates" / template / name).mkdir()
    box = Box(m / name)
    m.note(box)
    return box.ready()


def test_a_template_has_languages_of_its_own(fresh_mnt):
    m = fresh_mnt(config=LANGUAGES)
    own, plain = made(m, "own", "one"), m.box().ready()
    assert own.go("echo hello\n", "code.sh").text.startswith("not sh: ")
    assert plain.go("echo hello\n", "code.sh").text == "hello\n"
    assert own.go("x", "code.up").text == ""
    (plain.run / "stdin").write_text("some words\n")
    (plain.run / "language").write_text("shout\n")
    assert plain.go("x", "code").text == "SOME WORDS\n"
    (own.run / "language").write_text("quiet\n")
    spec = (m / ".sbxfs/templates/own/spec").read_text()
    assert 'command: ["echo", "not sh:", "{code}"]' in spec and 'command: ["tr", "a-z", "A-Z"]' in spec
