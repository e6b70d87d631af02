"""A local Ray cluster that lives as long as this process's standard input is open; prints its address."""

from __future__ import annotations

import sys
import warnings

warnings.simplefilter("ignore")
import ray  # noqa: E402

if __name__ == "__main__":
    ray.init(num_cpus=3, include_dashboard=False, configure_logging=False, log_to_driver=False)
    print(ray.get_runtime_context().gcs_address, flush=True)
    sys.stdin.read()
