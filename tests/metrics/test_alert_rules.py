"""The alert rules, run by promtool: each fires when it should, and not otherwise."""

from pathlib import Path

import pytest
import yaml

from support.prometheus import promtool

pytestmark = pytest.mark.programs

FOLDER = Path(__file__).parents[2] / "deploy" / "prometheus"


def test_prometheus_reads_the_rules() -> None:
    done = promtool("check", "rules", str(FOLDER / "calve.rules.yml"))
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_rule_fires_when_it_should_and_not_otherwise() -> None:
    done = promtool("test", "rules", str(FOLDER / "calve.test.yml"))
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_rule_has_a_case_in_which_it_fires_and_one_in_which_it_does_not() -> None:
    (group,) = yaml.safe_load((FOLDER / "calve.rules.yml").read_text())["groups"]
    checks = [
        check
        for case in yaml.safe_load((FOLDER / "calve.test.yml").read_text())["tests"]
        for check in case["alert_rule_test"]
    ]
    fired = {check["alertname"] for check in checks if check["exp_alerts"]}
    silent = {check["alertname"] for check in checks if not check["exp_alerts"]}
    assert fired == silent == {rule["alert"] for rule in group["rules"]}


def test_a_rule_that_is_wrong_would_be_found(tmp_path: Path) -> None:
    rules = (FOLDER / "calve.rules.yml").read_text()
    assert "time() - 26 * 3600" in rules
    (tmp_path / "calve.rules.yml").write_text(rules.replace("time() - 26 * 3600", "time() - 36 * 3600"))
    tests = yaml.safe_load((FOLDER / "calve.test.yml").read_text())
    tests["tests"] = [case for case in tests["tests"] if case["name"].startswith("CalveLate ")]
    assert len(tests["tests"]) == 2
    (tmp_path / "calve.test.yml").write_text(yaml.safe_dump(tests))
    done = promtool("test", "rules", str(tmp_path / "calve.test.yml"))
    assert done.returncode != 0 and "CalveLate" in done.stdout + done.stderr
