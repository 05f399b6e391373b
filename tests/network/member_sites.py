"""Sites of members whose letters go through memory. Not a test itself."""

from __future__ import annotations

from toys import MemoryTransport, Place

from weft.guards.privacy_terms import OPEN
from weft.network.coordinator_run import coordinate_run
from weft.network.model_saving_party import ModelSavingParty
from weft.network.run_progress import Progress
from weft.network.run_results import RESULTS
from weft.network.site_data_keys_and_consent import SiteMember
from weft.privacy.agreement import Limits, SitePolicy
from weft.privacy.ledger.run_booking import Ledger

#: Limits of sites that agree to all kinds of runs.
AGREES = Limits(kinds=("linear", "predict", "check"), askers=("south",))


class MemberSites:
    """Sites with their own folders, keys and policies; ``more`` are fields of `SiteMember`."""

    def __init__(self, folder, keys, tiles=None, *, terms=OPEN, limits=None, **more):
        self.folder, self.names = folder, tuple(keys)
        self.members = {
            name: SiteMember(
                name,
                tuple((tiles or {}).get(name, ())),
                keys[name],
                {other: keys[other].identity.public for other in keys},
                Ledger(folder / f"ledger-{name}"),
                policy=SitePolicy(terms, (limits or {}).get(name, AGREES)),
                **{field: values[name] for field, values in more.items()},
            )
            for name in keys
        }

    def ask(self, task, post=MemoryTransport):
        """Run a task to its end; the folder of what the coordinator hands out."""
        transport = post([self.place(name) for name in task.parties])
        run = self.folder / "coordinator"
        coordinate_run(lambda parties: transport, run, task, Progress("p-1"))
        return run / RESULTS

    def place(self, name):
        def open_party(request):
            party = self.members[name].open_party(request.plan, request.memory, request.run)
            return ModelSavingParty(party, self.folder / "saved" / name)

        return Place(name, self.folder / "sites" / name, open_party)
