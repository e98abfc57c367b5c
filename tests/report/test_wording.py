from seqto.figures import figure, told
from seqto.report.wording import facts, interval

LOSS = figure("accuracy_loss")


def test_an_interval_is_known_or_nothing() -> None:
    ends = {"accuracy_loss_low": 0.001, "accuracy_loss_high": 0.02}
    assert interval(LOSS, ends) == "0.10 to 2.00 %"
    assert interval(LOSS, {"accuracy_loss_low": 0.001}) == ""
    assert interval(figure("latency_ms"), {"latency_ms_low": 1.0, "latency_ms_high": 2.0}) == ""


def test_facts_have_the_interval_of_the_loss_and_the_share_of_the_size() -> None:
    ends = {"accuracy_loss_low": 0.001, "accuracy_loss_high": 0.02}
    metrics = {"accuracy_loss": 0.01, **ends, "size_bytes": 250.0, "latency_ms": 3.0}
    assert facts(told(), metrics, {"size_bytes": 1000.0}) == {
        "loss": "1.00 % (95 %: 0.10 to 2.00 %)",
        "size": "0.2 KB (25.0 % of float)",
        "latency": "3.00 ms",
    }


def test_facts_leave_out_what_is_not_known() -> None:
    assert facts(told(), {"size_bytes": 250.0}, {}) == {"size": "0.2 KB"}
    assert facts(told(), {"size_ratio": 0.25}, {}) == {"size": "25.0 %"}
    assert facts(told(), {}, {}) == {}
