"""Which losses are likely where nothing was counted."""

import pytest

from seqto.figures import PER_ROOT, RUINED, WORKS, usual_loss


def test_losses_go_with_the_square_root_of_divergences() -> None:
    assert usual_loss(0.04) == pytest.approx(PER_ROOT * 0.2)
    assert usual_loss(0.04, 0.5) == pytest.approx(0.1)
    # Rounding may make a divergence of nothing a little less, and nobody loses more than all.
    assert (usual_loss(-1e-9), usual_loss(1e6)) == (0.0, 1.0)


def test_what_nobody_wants_does_not_work() -> None:
    assert WORKS < RUINED < 1
