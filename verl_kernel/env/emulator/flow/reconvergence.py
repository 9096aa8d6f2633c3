# SPDX-License-Identifier: Apache-2.0
"""Orders the blocks of a kernel so that lanes which diverge reconverge at the first block that all of them reach.

The order is a weak topological order (Bourdoncle, "Efficient chaotic iteration strategies with widenings", 1993): a
block comes after its predecessors, except at the jump back to the head of a loop, and the blocks of a loop come before
those that follow it. A warp that always runs the earliest block for which lanes wait then needs no stack (Diamos et
al., "SIMD re-convergence at thread frontiers", 2011). The order of the text is not enough: LLVM rotates loops, and the
block at which lanes reconverge may stand before the one where they diverge.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence


def ranks(successors: Sequence[Sequence[int]]) -> list[int]:
    """Return the rank of each block in the order; block 0 is the kernel's entry, unreachable blocks come last.

    Args:
        successors: for each block the blocks that may follow; numbers beyond the last block, the end, are ignored.
    """
    count = len(successors)
    followers = [[block for block in targets if block < count] for targets in successors]
    reached = list(_ordered(followers, range(count), [0])) if count else []
    # What nothing reaches is lowered too, so it needs a rank.
    order = [*reached, *sorted(set(range(count)) - set(reached))]
    rank_of = [0] * count
    for rank, block in enumerate(order):
        rank_of[block] = rank
    return rank_of


def _ordered(followers: Sequence[Sequence[int]], inside: Collection[int], entries: Collection[int]) -> Iterator[int]:
    """Yield the blocks that some entries reach without leaving a part of the graph: each loop at once, head first."""
    for component in _components(followers, frozenset(inside), entries):
        # The component's first block to be reached is the loop's head; without it, inner loops come apart.
        head = component[0]
        yield head
        if len(component) > 1:
            body = component[1:]
            yield from _ordered(followers, body, [block for block in followers[head] if block in body])


def _components(
    followers: Sequence[Sequence[int]], inside: frozenset[int], entries: Collection[int]
) -> list[list[int]]:
    """Return the strongly connected components in topological order, each from the block that is reached first.

    This is Tarjan's algorithm with a stack of its own: a kernel may have thousands of blocks in a row.
    """
    index: dict[int, int] = {}
    lowest: dict[int, int] = {}
    open_blocks: list[int] = []
    is_open: set[int] = set()
    components: list[list[int]] = []
    for entry in entries:
        path = [] if entry in index else [(entry, iter(followers[entry]))]
        while path:
            block, unvisited = path[-1]
            if block not in index:
                index[block] = lowest[block] = len(index)
                open_blocks.append(block)
                is_open.add(block)
            # Blocks outside belong to an enclosing loop or are ranked; closed ones are in a finished component.
            following = next(
                (
                    follower
                    for follower in unvisited
                    if follower in inside and (follower not in index or follower in is_open)
                ),
                None,
            )
            if following is not None and following not in index:
                path.append((following, iter(followers[following])))
            elif following is not None:
                lowest[block] = min(lowest[block], index[following])
            else:
                path.pop()
                if path:
                    lowest[path[-1][0]] = min(lowest[path[-1][0]], lowest[block])
                if lowest[block] == index[block]:
                    component = open_blocks[open_blocks.index(block) :]
                    del open_blocks[-len(component) :]
                    is_open.difference_update(component)
                    components.append(component)
    # Tarjan's algorithm finishes components in reverse topological order.
    return components[::-1]
