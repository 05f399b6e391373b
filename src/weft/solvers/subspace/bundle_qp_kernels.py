"""The active-set method of the cutting planes' small QP, in machine code.

    maximise  hᵀμ − scale/2 μᵀHμ   over  μ ≥ 0,  Σ_{j∈g} μ_j = 1  for every group g

The first cut of group g, number g, is its slack (height 0, Gram row 0), which turns the ≤ of
the problem into the = above. One cut of each group is its *base* and gives the others room: μ_j
grows at the cost of μ_base(j). In these coordinates the constraints Σμ = 1 are gone, the slope is
slope_j − slope_base(j), and the Hessian

    M_jk = H_jk − H_j,base(k) − H_base(j),k + H_base(j),base(k)

of the cuts that may move (those in ``order``) is kept as a Cholesky factor, which gains and
loses rows one by one. Cuts outside stay at 0.

Cuts nearly repeat each other and outnumber the dimension, so M is often singular. A cut that
depends on those in the factor does not enter: it yields a direction without curvature, along
which the point slides upwards until a cut reaches 0 and leaves (``settle``). So the factor
stays well conditioned, whatever the cuts.

Nothing here draws random numbers, uses threads or calls BLAS: equal input gives equal bits.

``q`` is the ``State`` of a solve (:mod:`weft.solvers.subspace.bundle_qp`). Arrays are copied by
loops, and constants that are passed on get a type (``numba.int64``): the compiler takes seconds
over an assignment of slices, and compiles anew for every constant.
"""

from __future__ import annotations

import math
from typing import Any

import numba

from weft.numba_options import INNER, OUTER, PASTED

_FAST = {"reassoc", "contract", "nsz"}

# A pivot of M below this share of H_kk + H_base,base makes k dependent on the cuts before it.
# Rounding of a pivot is 1e-16 of that, times the growth in the elimination.
_FLAT = 1e-10
# If the way along a flat direction ends before a cut leaves, its curvature did matter. Then the
# cut enters, with a pivot of at least this share (of H_kk + H_base,base; of the longest cut):
# that bends directions, but their lengths come from a line search with the true H.
_FLOOR = 1e-13
_LEAST = 1e-16

# Groups whose steepest cut rises by less than this share of the steepest of all wait. Late in
# a solve most rises are rounding, and each would cost a slide.
_SHARE = 0.1

# Rounds in a row without progress after which rounding is all that is left, and rounds at all.
_IDLE = 10
_ROUNDS = 10_000

# What ``advance`` returns when no cut left: the way ended at its maximum, or did not rise.
INSIDE, NOWHERE = -1, -2


@numba.njit(**INNER, fastmath=_FAST)
def slopes(q: Any, scale: float) -> float:
    """Set slope = height − scale Hμ; return the objective (height + slope)ᵀμ/2."""
    n = q.mu.shape[0]
    slope = q.slope
    for j in range(n):
        slope[j] = q.height[j]
    for i in range(n):
        a = scale * q.mu[i]
        if a != 0.0:
            row = q.gram[i]
            for j in range(n):
                slope[j] -= a * row[j]
    value = 0.0
    for j in range(n):
        value += q.mu[j] * (q.height[j] + slope[j])
    return 0.5 * value


@numba.njit(**INNER)
def linear_gap(q: Any) -> float:
    """Return Σ_j μ_j (top of j's group − slope_j), top being the steepest slope of a group.

    The objective is concave, so no feasible point lies more than this above μ.
    """
    mu, slope, group, top = q.mu, q.slope, q.group, q.top
    for g in range(top.shape[0]):
        top[g] = slope[g]
    for j in range(mu.shape[0]):
        top[group[j]] = max(top[group[j]], slope[j])
    gap = 0.0
    for j in range(mu.shape[0]):
        gap += mu[j] * (top[group[j]] - slope[j])
    return gap


@numba.njit(**INNER, fastmath=_FAST)
def couple(q: Any, k: int) -> float:
    """Write cut k's row of the factor below the last, but for its diagonal; return the pivot."""
    m, factor = q.count[0], q.factor
    row = factor[m]
    o = q.base[q.group[k]]
    from_k, from_base = q.gram[k], q.gram[o]
    for i in range(m):
        j = q.order[i]
        other = q.base[q.group[j]]
        row[i] = (from_k[j] - from_base[j]) - (from_k[other] - from_base[other])
    for i in range(m):
        above = factor[i]
        total = row[i]
        for j in range(i):
            total -= above[j] * row[j]
        row[i] = total / above[i]
    pivot: float = (from_k[k] - from_base[k]) - (from_k[o] - from_base[o])
    for i in range(m):
        pivot -= row[i] * row[i]
    return pivot


@numba.njit(**INNER, fastmath=_FAST)
def remove(q: Any, at: int) -> None:
    """Take row ``at`` out of the factor.

    The rows below lose their column ``at``. Its outer product is added to theirs by rotations:
    one is made at every diagonal entry, and all later rows meet them in the same order.
    """
    factor, order, cosine, sine = q.factor, q.order, q.cosine, q.sine
    for i in range(at + 1, q.count[0]):
        old, row = factor[i], factor[i - 1]
        lost = old[at]
        for j in range(at):
            row[j] = old[j]
        for j in range(at, i - 1):
            entry = old[j + 1]
            row[j] = cosine[j] * entry + sine[j] * lost
            lost = cosine[j] * lost - sine[j] * entry
        radius = math.hypot(old[i], lost)
        cosine[i - 1] = old[i] / radius
        sine[i - 1] = lost / radius
        row[i - 1] = radius
        order[i - 1] = order[i]
    q.count[0] -= 1


@numba.njit(**INNER, fastmath=_FAST)
def back_solve(q: Any) -> None:
    """Solve factorᵀ p = direction in place."""
    direction = q.direction
    for i in range(q.count[0] - 1, -1, -1):
        row = q.factor[i]
        p = direction[i] / row[i]
        direction[i] = p
        for k in range(i):
            direction[k] -= p * row[k]


@numba.njit(**INNER, fastmath=_FAST)
def newton(q: Any) -> None:
    """Solve M direction = the slope in reduced coordinates."""
    direction = q.direction
    for i in range(q.count[0]):
        row = q.factor[i]
        j = q.order[i]
        total = q.slope[j] - q.slope[q.base[q.group[j]]]
        for k in range(i):
            total -= row[k] * direction[k]
        direction[i] = total / row[i]
    back_solve(q)


@numba.njit(**PASTED)
def spread(q: Any, k: int) -> int:
    """Set step from direction, k (if any) being its last entry; list free cuts; count them."""
    m = q.count[0]
    base, group, step, free = q.base, q.group, q.step, q.free
    total: int = base.shape[0]
    for g in range(total):
        free[g] = base[g]
        step[base[g]] = 0.0
    for i in range(q.count[1]):
        j = q.waiting[i]
        if base[group[j]] != j:
            free[total] = j
            step[j] = 0.0
            total += 1
    for i in range(m if k < 0 else m + 1):
        j = q.order[i] if i < m else k
        free[total] = j
        step[j] = q.direction[i]
        step[base[group[j]]] -= q.direction[i]
        total += 1
    return total


@numba.njit(**INNER, fastmath=_FAST)
def images(q: Any, total: int) -> float:
    """Set product[i] = (H step)[free[i]]; return stepᵀH step."""
    free, moves = q.free, q.moves
    for i in range(total):
        moves[i] = q.step[free[i]]
    curvature = 0.0
    for i in range(total):
        row = q.gram[free[i]]
        image = 0.0
        for k in range(total):
            image += row[free[k]] * moves[k]
        q.product[i] = image
        curvature += image * moves[i]
    return curvature


@numba.njit(**PASTED)
def release(q: Any, cut: int) -> None:
    """Fix a cut at 0. If it was a base, its group waits under a new one."""
    g = q.group[cut]
    leads = q.base[g] == cut
    for i in range(q.count[0] - 1, -1, -1):
        j = q.order[i]
        if j == cut:
            remove(q, i)
        elif leads and q.group[j] == g:
            remove(q, i)
            q.waiting[q.count[1]] = j
            q.count[1] += 1
    if leads:
        # The largest of the group: it leaves the most room before it is the next to reach 0.
        for j in range(q.mu.shape[0]):
            if q.group[j] == g and q.mu[j] > q.mu[q.base[g]]:
                q.base[g] = j


@numba.njit(**INNER)
def advance(q: Any, scale: float, k: Any) -> Any:
    """Go along direction to its maximum, or until a cut reaches 0; return that cut, if any."""
    total = spread(q, k)
    mu, slope, step, free = q.mu, q.slope, q.step, q.free
    rise = 0.0
    for i in range(total):
        rise += step[free[i]] * slope[free[i]]
    if rise <= 0.0:
        if k < 0 or mu[k] == 0.0:
            return NOWHERE
        rise = -rise
        for i in range(total):
            step[free[i]] = -step[free[i]]

    curvature = scale * images(q, total)
    length = rise / curvature if curvature > 0.0 else math.inf
    blocker: Any = numba.int64(INSIDE)
    for i in range(total):
        j = free[i]
        if step[j] < 0.0 and mu[j] <= -step[j] * length:
            length = mu[j] / -step[j]
            blocker = j
    if not length < math.inf:
        return NOWHERE
    for i in range(total):
        j = free[i]
        mu[j] = max(0.0, mu[j] + length * step[j])
        slope[j] -= scale * length * q.product[i]
    if blocker >= 0:
        mu[blocker] = 0.0
        release(q, blocker)
    return blocker


@numba.njit(**INNER)
def settle(q: Any, scale: float, least: float) -> None:
    """Bring all waiting cuts into the factor, or slide until they need not be there."""
    while q.count[1] > 0:
        q.count[1] -= 1
        k = q.waiting[q.count[1]]
        while q.base[q.group[k]] != k:
            m = q.count[0]
            o = q.base[q.group[k]]
            pivot = couple(q, k)
            size = q.gram[k, k] + q.gram[o, o]
            if pivot <= max(_FLAT * size, least):
                for i in range(m):
                    q.direction[i] = -q.factor[m, i]
                back_solve(q)
                q.direction[m] = 1.0
                end = advance(q, scale, k)
                if end == k or (end == NOWHERE and q.mu[k] == 0.0):
                    break
                if end >= 0:
                    continue
                pivot = max(pivot, _FLOOR * size, least)
            q.factor[m, m] = math.sqrt(pivot)
            q.order[m] = k
            q.count[0] += 1
            break


@numba.njit(**PASTED)
def enter(q: Any, share: float) -> None:
    """Let the steepest cut of every group wait, if it rises by ``share`` of the steepest."""
    base, group, slope, steepest = q.base, q.group, q.slope, q.free
    groups = base.shape[0]
    most = 0.0
    for g in range(groups):
        steepest[g] = base[g]
        most = max(most, q.top[g] - slope[base[g]])
    for j in range(q.mu.shape[0]):
        if slope[j] > slope[steepest[group[j]]]:
            steepest[group[j]] = j
    for g in range(groups):
        k = steepest[g]
        if k != base[g] and q.mu[k] == 0.0 and q.top[g] - slope[base[g]] >= share * most:
            q.waiting[q.count[1]] = k
            q.count[1] += 1


@numba.njit(**PASTED)
def climb(q: Any, scale: float, least: float) -> None:
    """Take Newton steps until one ends inside: at the optimum, unless a pivot was raised."""
    while q.count[0] > 0:
        newton(q)
        # Cuts at 0 that would fall go first, all at once. The direction rises, and the slopes of
        # cuts that just entered are what makes it rise: some of them stay.
        before = q.count[0]
        for i in range(before - 1, -1, -1):
            if q.mu[q.order[i]] == 0.0 and q.direction[i] <= 0.0:
                remove(q, i)
        if q.count[0] < before:
            continue
        if advance(q, scale, numba.int64(-1)) < 0:
            break
        settle(q, scale, least)


@numba.njit(**PASTED)
def balance(q: Any) -> None:
    """Take cuts at 0 out of the factor; bases make every group's sum 1 again, to rounding."""
    for i in range(q.count[0] - 1, -1, -1):
        if q.mu[q.order[i]] == 0.0:
            remove(q, i)
    rest = q.top
    rest[:] = 1.0
    for i in range(q.count[0]):
        rest[q.group[q.order[i]]] -= q.mu[q.order[i]]
    for g in range(rest.shape[0]):
        q.mu[q.base[g]] = max(0.0, rest[g])


@numba.njit(**PASTED)
def start(q: Any) -> float:
    """Choose the largest cuts as bases, let others above 0 wait; return the least pivot."""
    mu, group, base = q.mu, q.group, q.base
    longest = 0.0
    for g in range(base.shape[0]):
        base[g] = g
    for j in range(mu.shape[0]):
        longest = max(longest, q.gram[j, j])
        if mu[j] > mu[base[group[j]]]:
            base[group[j]] = j
    q.count[:] = 0
    for j in range(mu.shape[0] - 1, -1, -1):
        if mu[j] > 0.0 and base[group[j]] != j:
            q.waiting[q.count[1]] = j
            q.count[1] += 1
    return _LEAST * longest if longest > 0.0 else 1.0


@numba.njit(**OUTER)
def ascend(q: Any, scale: float, tolerance: float) -> tuple[float, float]:
    """Raise μ until its gap is at most the tolerance, or rounding stops it; return value, gap."""
    best_value, best_gap, idle = -math.inf, math.inf, 0
    least = start(q)
    value = slopes(q, scale)
    gap = linear_gap(q)
    for _ in range(_ROUNDS):
        if gap <= tolerance or idle >= _IDLE:
            break
        # After a round in vain every cut that rises may try: the steepest may have been rounding.
        enter(q, _SHARE if idle == 0 else 0.0)
        settle(q, scale, least)
        climb(q, scale, least)
        balance(q)
        value = slopes(q, scale)
        gap = linear_gap(q)
        idle += 1
        if gap < 0.99 * best_gap or value > best_value + 1e-15 * abs(value):
            idle = 0
        best_gap = min(best_gap, gap)
        best_value = max(best_value, value)
    return value, gap
