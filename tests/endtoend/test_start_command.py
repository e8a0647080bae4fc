"""`latentbandits start`: a model with a wide prior, without a log."""

import numpy as np
import pytest

from latentbandits import load
from latentbandits.cli.main import main
from latentbandits.models.arms.start import pooled_posterior, reward_names, start_model
from latentbandits.models.artefacts import load_catalogue


@pytest.fixture
def actions(tmp_path):
    path = tmp_path / "actions.csv"
    path.write_text("action,title\na,The first\nb,The second\nc,\n")
    return str(path)


def start(actions, out, *options):
    return main(["start", "--actions", str(actions), "--out", str(out), *options])


def test_the_model_has_one_state_and_the_actions_of_the_table(actions, tmp_path, capsys):
    out = tmp_path / "start"
    options = ("--name-column", "title", "--mean", "0.1", "--spread", "0.05")
    assert start(actions, out, "--rewards", "clicks", *options) == 0
    model = load(out)
    np.testing.assert_allclose(model.alpha, [[3.5, 3.5, 3.5]])
    np.testing.assert_allclose(model.beta, [[31.5, 31.5, 31.5]])
    assert load_catalogue(out).names == ("The first", "The second", "c")
    assert "3 actions, clicks: expected reward 0.1, spread 0.05" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--rewards", "click"), "did you mean 'clicks'?"),
        (("--rewards", "clicks", "--mean", "2"), "must lie between 0 and 1; got 2"),
        (("--rewards", "clicks", "--mean", "nan"), "must be a finite number; got nan"),
        (("--rewards", "clicks", "--mean", "0.1", "--spread", "0.9"), "nearest possible one"),
        (("--rewards", "clicks", "--spread", "-1"), "spread must be"),
        (("--rewards", "counts", "--mean", "-1"), "must be above zero; got -1"),
        (("--rewards", "counts", "--mean", "1e308"), "at most 1e+100 in size; got 1e+308"),
        (("--rewards", "gaussian", "--values", "1"), "two different rewards or more; got [1.0]"),
        (("--rewards", "gaussian", "--mean", "50"), "got [0.0, 1.0] with 50"),
        (("--rewards", "clicks", "--values", "0", "7"), "bernoulli rewards are"),
        (("--rewards", "clicks", "--action", "id"), "id"),
    ],
)
def test_bad_input_is_refused_in_a_sentence_and_nothing_is_written(
    actions, tmp_path, capsys, options, reason
):
    assert start(actions, tmp_path / "start", *options) == 2
    printed = capsys.readouterr().err
    assert reason in printed
    assert printed.count("\n") == 1
    assert not (tmp_path / "start").exists()


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        ("a\nb\na\n", "row 3 of {} names the action 'a' again"),
        ("a\n\nb\n", "row 2 of {} has no action"),
        ("", "{} has no rows"),
        ("a\n", "{} has one action only ('a')"),
    ],
)
def test_actions_need_ids_of_their_own(tmp_path, capsys, rows, reason):
    path = tmp_path / "actions.csv"
    path.write_text("action,n\n" + "".join(f"{row},1\n" for row in rows.splitlines()))
    assert start(path, tmp_path / "start", "--rewards", "clicks") == 2
    assert reason.format(path) in capsys.readouterr().err


def test_a_table_as_a_spreadsheet_writes_it(tmp_path, capsys):
    path = tmp_path / "actions.csv"
    path.write_bytes(b'\xef\xbb\xbfaction;title\r\n"a; b";"say ""hi"""\r\nc;\r\n')
    assert start(path, tmp_path / "start", "--rewards", "clicks") == 0
    assert load_catalogue(tmp_path / "start").ids == ("a; b", "c")
    assert capsys.readouterr().out.startswith("2 actions, clicks")


def test_lists_are_no_ids(tmp_path, capsys):
    path = tmp_path / "actions.jsonl"
    path.write_text('{"action": ["a"]}\n{"action": ["b"]}\n')
    assert start(path, tmp_path / "start", "--rewards", "clicks") == 2
    assert "the column action holds lists, not text" in capsys.readouterr().err


@pytest.mark.parametrize("rewards", reward_names())
def test_pooling_is_conditioning_on_the_rewards_of_all_users(rewards):
    model = start_model(rewards, 3)
    rng = np.random.default_rng(0)
    theta = model.draw_theta(np.zeros(1, np.int64), rng)
    actions = rng.integers(3, size=60)
    values = np.array([model.draw_rewards(theta, None, rng)[0, a] for a in actions])
    posterior = model.parameters(1)
    for action, value in zip(actions, values, strict=True):
        _, posterior = model.condition(posterior, None, np.array([action]), np.array([value]))
    pooled = pooled_posterior(model, actions, values)
    wanted = model.posterior_rewards(posterior, None)
    for one, other in zip(
        pooled.posterior_rewards(pooled.parameters(1), None), wanted, strict=True
    ):
        np.testing.assert_allclose(one, other, rtol=1e-9)
