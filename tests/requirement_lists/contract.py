"""Which promises the public contract suite proves, by the names of its tests.

`snapshot_plugin.testing.StoreContract` runs in other people's projects too, so it does not carry our marks.
"""

from __future__ import annotations

__all__ = ["CONTRACT"]

CONTRACT: dict[str, tuple[str, ...]] = {
    # saving
    "test_a_saved_snapshot_is_what_another_store_object_loads": (
        "ORBIT-STORE-SAVE",
        "ORBIT-STORE-LOAD",
        "ORBIT-TEST-STORAGE",
        "ONERING-STORAGE-SAVE",
        "STORE-BACKENDS",
        "STORE-SAVE-REF",
        "STORE-SHARED",
        "TERMINAL-QUALITY-INTEGRITY",
    ),
    "test_every_save_gets_the_next_number_and_stays_loadable_under_it": ("STORE-LOAD-AT", "STORE-ORDER-GROWS"),
    "test_a_store_opened_later_continues_the_numbers": ("STORE-ORDER-GROWS",),
    "test_any_edit_of_the_conversation_is_kept": ("STORE-SAVE-SPLICE", "FORMAT-HEADER-SPLICE"),
    "test_any_change_of_the_state_is_kept": ("FORMAT-PAYLOAD-REMOVED",),
    "test_equal_content_has_an_equal_root_whatever_came_before": ("FORMAT-ROOT-CONTENT",),
    "test_numbers_grow_though_the_clock_runs_backwards": ("STORE-ORDER-CLOCK", "FORMAT-ORDER-HI"),
    "test_saves_happen_in_the_order_in_which_they_were_called": ("STORE-ORDER-CALLS",),
    "test_an_unchanged_session_writes_nothing": ("STORE-UNCHANGED",),
    "test_snapshot_tags_make_even_an_unchanged_session_be_saved": ("STORE-UNCHANGED-TAGS", "FORMAT-HEADER-TAGS"),
    "test_what_changed_decides_the_size_not_how_long_the_session_is": (
        "STORE-SAVE-DELTA",
        "STORE-SAVE-SECTIONS",
        "ORBIT-FUTURE-DELTA",
    ),
    # conflicts
    "test_a_writer_that_missed_a_save_is_refused_and_writes_nothing": (
        "STORE-CONFLICT-STALE",
        "STORE-CONFLICT-NOTHING",
        "FORMAT-WRITE-HEAD",
    ),
    "test_a_value_that_was_never_loaded_does_not_replace_a_session_that_exists": ("STORE-CONFLICT-SEEN-NOTHING",),
    "test_a_writer_that_stalled_while_another_saved_and_forgot_is_refused": ("STORE-CONFLICT-REWRITTEN",),
    "test_base_zero_means_the_session_must_not_exist": ("STORE-CONFLICT-BASE",),
    "test_base_names_the_number_the_session_must_be_at": ("STORE-CONFLICT-BASE",),
    "test_of_writers_that_save_at_once_on_the_same_base_exactly_one_wins": ("TERMINAL-TEST-CONCURRENT",),
    # finding
    "test_a_session_that_was_never_saved_is_not_found": (
        "STORE-NOT-FOUND-SESSION",
        "ORBIT-ERROR-NOT-FOUND",
        "TERMINAL-MANAGER-LOAD-MISSING",
    ),
    "test_a_number_that_was_never_used_is_not_found": ("STORE-NOT-FOUND-SEQ",),
    "test_a_session_id_that_no_store_can_hold_is_refused": ("TERMINAL-SECURITY-IDS",),
    "test_unusual_session_ids_are_kept_as_they_are": ("STORE-FAULT-EMOJI",),
    "test_read_says_where_the_snapshot_was_found": ("STORE-READ-WHERE",),
    "test_the_list_of_an_empty_store_is_empty": ("STORE-EMPTY-LIST",),
    "test_the_list_shows_the_newest_of_each_session_last_changed_first": (
        "STORE-LIST-NEWEST",
        "ORBIT-STORE-LIST",
        "TERMINAL-MANAGER-LIST",
        "TERMINAL-MANAGER-LISTED",
        "TERMINAL-MANAGER-SAVE-INDEX",
    ),
    "test_the_list_tells_what_a_session_is_about": ("FORMAT-PAYLOAD-META",),
    "test_history_shows_every_snapshot_newest_first": (
        "STORE-HISTORY",
        "STORE-SAVE-TRIGGER",
        "FORMAT-HEADER-TRIGGER",
    ),
    "test_check_reads_everything_and_finds_nothing_wrong": ("STORE-CHECK",),
    # values
    "test_fields_and_blocks_of_unknown_kinds_round_trip": (
        "STORE-VALUE-UNKNOWN-FIELDS",
        "STORE-VALUE-UNKNOWN-BLOCKS",
    ),
    "test_lone_surrogates_round_trip": ("STORE-VALUE-SURROGATE", "FORMAT-PAYLOAD-SURROGATE"),
    "test_a_huge_tool_output_is_kept_whole_and_noticed": ("STORE-FAULT-20MB", "STORE-TOO-LARGE-NOTICE"),
    "test_a_hundred_thousand_messages_are_kept": ("STORE-FAULT-100K", "STORE-SAVE-DELTA"),
    # removing
    "test_a_deleted_session_is_not_found": (
        "STORE-NOT-FOUND-SESSION",
        "ORBIT-STORE-DELETE",
        "ORBIT-TEST-STORAGE",
        "TERMINAL-MANAGER-DELETE",
    ),
    "test_the_trash_shows_what_was_deleted_newest_first": ("STORE-DELETE-TRASH",),
    "test_an_undeleted_session_is_back_with_all_its_snapshots": ("STORE-UNDELETE",),
    "test_a_new_session_may_take_the_name_and_then_the_old_one_stays_out": ("STORE-UNDELETE",),
    "test_purge_spares_what_is_still_in_its_grace_period": ("STORE-PURGE",),
    "test_purge_removes_for_ever_what_is_past_its_grace_period": ("STORE-PURGE",),
    # forgetting
    "test_forgetting_drops_what_the_policy_does_not_keep_and_says_why": (
        "STORE-FORGET",
        "STORE-FORGET-REASONS",
        "STORE-NOT-FOUND-SEQ",
    ),
    "test_what_stays_keeps_number_content_root_and_tags": ("STORE-FORGET", "FORMAT-ROOT-REWRITE"),
    "test_a_dry_run_decides_the_same_and_changes_nothing": ("STORE-FORGET-DRY-RUN",),
    "test_age_is_counted_by_the_stores_clock": ("ORBIT-SECURITY-PERIOD",),
    # damage
    "test_loading_falls_back_to_the_newest_that_is_whole": ("STORE-CORRUPT-FALLBACK", "FORMAT-READ-FALLBACK"),
    "test_strict_loading_and_a_named_number_raise_instead": (
        "STORE-CORRUPT-STRICT",
        "STORE-CORRUPT-AT",
        "ORBIT-ERROR-CORRUPTED",
    ),
    "test_if_nothing_is_whole_loading_raises": ("STORE-CORRUPT-ALL", "TERMINAL-MANAGER-LOAD-BAD"),
    "test_damage_is_listed_and_never_left_out": ("STORE-LIST-DAMAGED",),
    "test_check_finds_the_damage_and_changes_nothing": (
        "STORE-CHECK",
        "STORE-CHECK-FINDINGS",
        "TERMINAL-TEST-CORRUPTED",
    ),
    "test_repair_keeps_what_is_whole": ("STORE-REPAIR",),
    # cancellation, crowds, closing
    "test_a_cancelled_save_leaves_the_old_snapshot_or_the_new_one": ("STORE-CANCEL", "ONERING-LAYER-ATOMIC"),
    "test_a_save_cancelled_while_it_waits_blocks_no_other_save": ("STORE-CANCEL",),
    "test_readers_see_whole_snapshots_while_others_save_and_forget": ("STORE-SHARED", "TERMINAL-TEST-CONCURRENT"),
    "test_a_closed_store_refuses_to_save_and_writes_nothing": ("STORE-CLOSE",),
}
