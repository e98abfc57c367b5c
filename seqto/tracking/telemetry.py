"""MLflow's telemetry is off in every process that uses seqto.

It calls a server of MLflow's makers, and its threads change the environment while others read it,
of which requests in other threads die.
"""

import sys


def stop_telemetry() -> None:
    """Stop what was started by a program that imported MLflow before seqto."""
    if "mlflow.telemetry" not in sys.modules:
        return  # `seqto/__init__.py` has set the variable that MLflow reads when it is imported.
    from mlflow.telemetry import get_telemetry_client, set_telemetry_client

    client = get_telemetry_client()
    # With the variable set this removes the client, so that nobody hands it records any more.
    set_telemetry_client()
    if client is not None:
        # Its threads end when they see this; joining them would send what they still hold.
        client._is_stopped = True
