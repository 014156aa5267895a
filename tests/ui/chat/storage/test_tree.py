"""Which messages are shown, as plain numbers: no database."""

from __future__ import annotations

from ui.chat.storage.tree import MessageTree, Step, TreeNode


def tree(
    parents: dict[int, int | None],
    active: dict[int | None, int],
    deleted: set[int] | None = None,
) -> MessageTree:
    nodes = [
        TreeNode(key, parent, active.get(key), key in (deleted or set()), f"m{key}")
        for key, parent in parents.items()
    ]
    return MessageTree(nodes, active.get(None))


# 1 - 2 - 3 - 4        5 is another answer to 1, with a question 6 below it
PARENTS = {1: None, 2: 1, 3: 2, 4: 3, 5: 1, 6: 5}
ACTIVE: dict[int | None, int] = {None: 1, 1: 2, 2: 3, 3: 4, 5: 6}


def test_an_empty_conversation_shows_nothing() -> None:
    empty = tree({}, {})
    assert (empty.shown_path(), empty.end(), len(empty)) == ([], None, 0)


def test_the_path_follows_what_was_chosen() -> None:
    assert tree(PARENTS, ACTIVE).shown_path() == [1, 2, 3, 4]
    assert tree(PARENTS, {**ACTIVE, 1: 5}).shown_path() == [1, 5, 6]


def test_without_a_choice_it_follows_the_newest() -> None:
    assert tree(PARENTS, {}).shown_path() == [1, 5, 6]


def test_a_choice_that_is_no_child_does_not_count() -> None:
    assert tree(PARENTS, {None: 1, 1: 4, 4: 1}).shown_path() == [1, 5, 6]


def test_variants_are_in_order_of_age() -> None:
    assert tree(PARENTS, ACTIVE).variants(5) == [2, 5]
    assert tree(PARENTS, ACTIVE).variants(1) == [1]


def test_what_is_below_a_deleted_message_takes_its_place() -> None:
    hidden = tree(PARENTS, ACTIVE, {2})
    assert hidden.shown_path() == [1, 3, 4]
    assert hidden.variants(3) == [3, 5]
    assert hidden.shown_parent(3) == 1


def test_the_first_message_can_be_deleted_too() -> None:
    hidden = tree(PARENTS, ACTIVE, {1})
    assert hidden.shown_path() == [2, 3, 4]
    assert hidden.variants(2) == [2, 5]


def test_new_messages_hang_below_hidden_ones_at_the_end() -> None:
    hidden = tree(PARENTS, ACTIVE, {3, 4})
    assert (hidden.shown_path(), hidden.end()) == ([1, 2], 4)


def test_steps_to_a_message_name_only_what_changes() -> None:
    assert tree(PARENTS, ACTIVE).steps_to(6) == [Step(1, 5)]
    assert tree(PARENTS, ACTIVE).steps_to(4) == []
    assert tree(PARENTS, {}).steps_to(2) == [Step(None, 1), Step(1, 2)]


def test_deleting_in_the_middle_changes_no_way() -> None:
    assert tree(PARENTS, ACTIVE).steps_after_deleting(2) == []


def test_after_deleting_the_last_of_a_branch_the_nearest_variant_is_shown() -> None:
    parents = {1: None, 2: 1, 3: 1, 4: 1}
    assert tree(parents, {None: 1, 1: 3}).steps_after_deleting(3) == [Step(1, 2)]
    assert tree(parents, {None: 1, 1: 2}).steps_after_deleting(2) == [Step(1, 3)]
    assert tree(parents, {None: 1, 1: 4}).steps_after_deleting(2) == []
    assert tree({1: None, 2: 1}, {None: 1, 1: 2}).steps_after_deleting(2) == []


def test_the_way_to_the_nearest_variant_leads_through_hidden_ones() -> None:
    parents = {1: None, 2: 1, 3: 2, 4: 1}
    steps = tree(parents, {None: 1, 1: 4}, {2}).steps_after_deleting(4)
    assert steps == [Step(1, 2), Step(2, 3)]


def test_everything_below() -> None:
    assert sorted(tree(PARENTS, ACTIVE, {2}).descendants(1)) == [2, 3, 4, 5, 6]
    assert tree(PARENTS, ACTIVE).descendants(4) == []


def test_long_conversations_are_no_deep_recursion() -> None:
    parents = {key: key - 1 if key else None for key in range(20_000)}
    long = tree(parents, {})
    assert long.shown_path() == list(range(20_000))
    assert len(long.descendants(0)) == 19_999
    assert tree(parents, {}, set(range(1, 20_000))).shown_path() == [0]
