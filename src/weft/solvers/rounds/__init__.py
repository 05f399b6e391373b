"""What the methods of the field share: rounds over running sums, and a measured point.

A method is two small halves. The coordinator's (:class:`.coordinator.RoundCoordinator`) names the
phases of an iteration and the sums that go down and come up in each. The party's
(:class:`.party.RoundParty`) answers the phases. Who takes part, lost replies, checkpoints, the
certificate and the history are the same for all.
"""
