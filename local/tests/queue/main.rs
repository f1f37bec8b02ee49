//! The queue as AWS documents it, through the AWS SDK.
//!
//! The functions of `queues`, `standard`, `fifo`, `batches` and `dead_letters` take any SQS client and use names of their
//! own, so they run on an emulator or on AWS as well; waiting is tokio's. Here they run on the embedded queue in paused
//! time. `embedded` and `state` hold what only the embedded queue has.

#![expect(clippy::unwrap_used, reason = "a test stops at what it does not expect")]

mod batches;
mod dead_letters;
mod embedded;
mod fifo;
mod kit;
mod queues;
mod standard;
mod state;

/// One test for each function of a suite.
macro_rules! on_the_embedded_queue {
    ($($suite:ident: $($name:ident),* $(,)?;)*) => {
        $($(
            #[tokio::test(start_paused = true)]
            async fn $name() {
                crate::$suite::$name(&crate::kit::embedded().1).await;
            }
        )*)*
    };
}

mod suite {
    on_the_embedded_queue! {
        queues:
            creating_a_queue_twice_gives_the_same_url,
            creating_a_queue_with_other_attributes_is_refused,
            a_fifo_queue_must_be_named_so,
            a_name_rests_for_a_minute_after_its_queue_is_deleted,
            a_missing_queue_is_reported_as_such_by_every_operation,
            queues_are_listed_by_prefix_in_pages,
            attributes_read_back_as_they_were_set,
            attributes_out_of_range_are_refused_and_change_nothing,
            counts_follow_messages_through_their_states,
            a_purge_deletes_everything_and_is_not_repeated_within_a_minute,
            tags_are_kept,
            only_the_last_segment_of_a_url_names_the_queue;
        standard:
            a_received_message_hides_for_the_visibility_timeout,
            a_receive_can_override_the_visibility_timeout,
            a_deleted_message_does_not_come_back,
            an_old_receipt_handle_succeeds_and_deletes_nothing,
            the_latest_receipt_handle_deletes_after_the_visibility_timeout,
            a_receipt_handle_of_another_queue_is_invalid,
            visibility_is_prolonged_and_given_up,
            visibility_of_a_visible_or_deleted_message_cannot_change,
            visibility_ends_twelve_hours_after_the_receive,
            a_message_delay_hides_it_and_overrides_the_queues,
            a_queue_delay_holds_for_new_messages_only,
            retention_deletes_old_messages_even_in_flight,
            a_long_poll_returns_when_a_message_arrives,
            a_long_poll_returns_when_a_delay_or_a_visibility_ends,
            a_long_poll_ends_empty_after_its_time,
            the_queues_wait_time_is_the_default,
            two_long_polls_share_no_message,
            system_attributes_tell_the_story_of_a_message,
            message_attributes_come_back_with_the_documented_digest,
            attributes_are_filtered_by_name_and_prefix,
            bad_messages_are_refused,
            bad_receives_are_refused;
        fifo:
            messages_of_a_group_come_in_order,
            a_message_in_flight_holds_its_group_back,
            one_receive_takes_several_of_a_group_in_order,
            a_group_in_flight_does_not_hold_others_back,
            a_group_opens_when_its_message_is_given_up_or_times_out,
            a_message_behind_one_in_flight_waits_after_its_own_time_out,
            deleting_the_head_wakes_a_long_poll,
            the_same_deduplication_id_is_taken_once_in_five_minutes,
            deduplication_outlives_the_message,
            content_stands_in_for_the_deduplication_id,
            deduplication_can_count_by_group,
            a_group_id_and_a_deduplication_id_are_required,
            a_message_takes_no_delay_of_its_own,
            a_new_queue_delay_holds_for_waiting_messages,
            an_expired_receipt_handle_deletes_nothing_and_says_so,
            sequence_numbers_grow;
        batches:
            a_batch_sends_receives_and_deletes_ten,
            bad_entries_fail_alone,
            an_empty_batch_is_refused,
            more_than_ten_entries_are_refused,
            repeated_ids_are_refused,
            malformed_ids_are_refused,
            a_batch_of_more_than_a_mebibyte_is_refused,
            visibility_changes_in_batches;
        dead_letters:
            a_message_received_too_often_moves_with_its_id_and_time,
            a_fifo_dead_letter_keeps_its_group_and_gets_a_new_time,
            a_dead_head_lets_its_group_go_on,
            redrive_policies_are_checked,
            a_dead_letter_queue_can_refuse_sources,
            sources_of_a_dead_letter_queue_are_listed,
            redriven_messages_start_anew_in_their_source,
            a_redrive_can_go_elsewhere_at_a_rate_and_be_cancelled,
            a_message_without_a_source_fails_the_redrive,
            only_dead_letter_queues_are_redriven;
    }
}
