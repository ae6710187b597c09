"""An adaptive limit: a service loses half of its servers and gets them back.

The simulation runs in virtual time, so a minute and a half takes a moment. Requests arrive at
1.5 times the capacity of the service. AIMD keeps the p99 of the admitted requests near 200 ms.

Run it: python examples/adaptive.py
"""

from penstock.adaptive import AIMD
from penstock.testing.load_simulation import SimulatedService, Unlimited, simulate

SERVERS = [(0, 20), (30, 10), (60, 20)]  # (from second, number of servers)


def main() -> None:
    limited = simulate(AIMD(target="200ms"), SimulatedService(servers=SERVERS), [(0, 600)], 90)
    without = simulate(Unlimited(), SimulatedService(servers=SERVERS), [(0, 600)], 90)
    print("second  limit  capacity  finished  p99        p99 without a limit")
    for row, other in list(zip(limited, without, strict=True))[4::5]:
        print(
            f"{row.at:>6}  {row.limit:>5}  {row.capacity:>6.0f}/s  {row.finished:>6}/s"
            f"  {row.p99 * 1000:>4.0f} ms    {other.p99:>5.1f} s  {'#' * round(row.limit / 2)}"
        )


if __name__ == "__main__":
    main()
