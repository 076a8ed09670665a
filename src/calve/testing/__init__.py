"""What others may build their tests on: fakes, contract suites, the crashing port, the clock, the simulator.

Services that only our own tests start are in `tests/support`.
"""
