"""template.yaml as it is: every check on it finds nothing. test_template_broken.py shows that every check can find
something.

Needs PyYAML, aws-sam-translator, and the resource schemas that cfn-lint brings along (`template.schema_folder`).
"""

import pytest

import template_alarms as alarms
import template_data as data
import template_existence as existence
import template_permissions as permissions
import template_references as references
import template_settings as settings
import template_workers as workers
from template import ROOT, Template, read


@pytest.fixture(scope="module")
def template() -> Template:
    return read()


@pytest.fixture(params=["as written", "as SAM makes it"])
def document(request: pytest.FixtureRequest, template: Template) -> dict:
    return template.raw if request.param == "as written" else template.deployed


# ---------------------------------------------------------------- references


def test_every_reference_names_something_that_has_the_attribute(document: dict) -> None:
    assert references.dangling(document) == []


def test_every_resource_type_exists(document: dict) -> None:
    assert references.unknown_types(document) == []


def test_no_parameter_condition_or_mapping_is_left_over(document: dict) -> None:
    assert references.unused(document) == []


def test_no_name_means_two_things(document: dict) -> None:
    assert references.twice_named(document) == []


def test_no_resource_waits_for_itself(document: dict) -> None:
    assert references.circles(document) == []


def test_in_no_combination_of_parameters_something_refers_to_what_does_not_exist(template: Template) -> None:
    assert references.missing_in_combinations(template) == []


def test_in_every_combination_of_parameters_that_exists_which_was_asked_for(template: Template) -> None:
    assert existence.wrong_combinations(template) == []


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({}, []),
        ({"SubnetIds": "subnet-1", "SecurityGroupIds": "sg-1"}, []),
        ({"SubnetIds": "subnet-1", "VpcId": "vpc-1"}, []),
        ({"SecurityGroupIds": "sg-1"}, ["Network=existing needs SubnetIds"]),
        ({"SubnetIds": "subnet-1"}, ["Network=existing needs SecurityGroupIds, or VpcId to make one in"]),
    ],
)
def test_an_existing_network_must_be_named(template: Template, values: dict, said: list[str]) -> None:
    assert existence.refused(template, ({"Network": "existing"} if values else {}) | values) == said


def test_workers_start_after_their_way_out_exists_and_end_before_it_goes(template: Template) -> None:
    assert references.routes_that_come_late(template) == []


# ---------------------------------------------------------------- tables and queues


def test_tables_have_the_stream_the_time_to_live_and_the_backups_that_the_code_needs(template: Template) -> None:
    assert data.wrong_tables(template) == []


def test_indexes_are_those_that_the_code_queries(template: Template) -> None:
    assert data.wrong_indexes(template) == []


def test_provisioned_tables_scale_and_can_come_from_on_demand(template: Template) -> None:
    assert data.wrong_billing(template) == []


def test_every_queue_is_encrypted_and_every_queue_of_work_has_dead_letters_that_live_longer(template: Template) -> None:
    assert data.wrong_queues(template) == []


def test_a_message_stays_hidden_for_six_times_as_long_as_its_function_may_take(template: Template) -> None:
    assert data.wrong_visibility(template) == []


# ---------------------------------------------------------------- triggers


def test_a_record_that_cannot_be_handled_neither_blocks_its_shard_nor_vanishes(template: Template) -> None:
    assert data.wrong_stream(template) == []


def test_the_stream_s_filter_is_the_one_that_the_handler_is_tested_with(template: Template) -> None:
    assert data.wrong_filters(template) == []


def test_the_queue_never_starts_more_runs_than_are_reserved(template: Template) -> None:
    assert data.wrong_concurrency(template) == []


# ---------------------------------------------------------------- permissions


def test_every_statement_names_actions_and_resources(template: Template) -> None:
    assert permissions.wrong_statements(template) == []


def test_whoever_sends_to_an_encrypted_queue_may_use_its_key(template: Template) -> None:
    assert permissions.wrong_senders(template) == []


def test_the_key_is_for_this_account_and_its_logs_only(template: Template) -> None:
    assert permissions.wrong_key_policy(template) == []


# ---------------------------------------------------------------- workers


def test_no_deployment_sets_the_count_of_workers(template: Template) -> None:
    assert workers.sets_a_count(template) == []


def test_a_deployment_that_fails_is_rolled_back(template: Template) -> None:
    assert workers.wrong_service(template) == []


def test_the_worker_s_container_can_do_its_work_and_nothing_else(template: Template) -> None:
    assert workers.wrong_task(template) == []


def test_there_is_no_shell_anywhere(template: Template) -> None:
    assert workers.shells(template) == []


def test_sizes_are_fargate_s_and_the_worker_knows_its_memory(template: Template) -> None:
    assert workers.wrong_sizes(template) == []


def test_the_longest_shutdown_ends_before_the_kill(template: Template) -> None:
    assert workers.shutdown_that_takes_too_long(template) == []


# ---------------------------------------------------------------- functions, logs, alarms


def test_each_function_is_traced_and_has_a_log_that_ends(template: Template) -> None:
    assert alarms.wrong_functions(template) == []


def test_alarms_name_what_exists_as_cloudwatch_knows_it(template: Template) -> None:
    assert alarms.wrong_dimensions(template) == []


def test_every_function_table_and_queue_of_failures_has_its_alarms(template: Template) -> None:
    assert alarms.unwatched(template) == []


def test_every_alarm_can_ring_and_says_where_to_read_on(template: Template) -> None:
    assert alarms.wrong_alarms(template) == []


def test_metrics_read_events_and_fields_that_the_code_writes(template: Template) -> None:
    assert alarms.wrong_metrics(template) == []


# ---------------------------------------------------------------- settings and documents


def test_every_process_is_told_its_tables_and_queues(template: Template) -> None:
    assert settings.wrong_names(template) == []


def test_every_setting_is_a_parameter_with_the_same_default_and_bounds(template: Template) -> None:
    assert settings.wrong_settings(template) == []


def test_every_parameter_can_be_left_out(template: Template) -> None:
    assert settings.wrong_parameters(template) == []


def test_samconfig_gives_values_that_parameters_allow(template: Template) -> None:
    assert settings.wrong_samconfig(template, (ROOT / "samconfig.toml").read_text(encoding="utf-8")) == []


def test_every_parameter_and_every_alarm_is_documented(template: Template) -> None:
    deploy = (ROOT / "docs/deploy.md").read_text(encoding="utf-8")
    operations = (ROOT / "docs/operations.md").read_text(encoding="utf-8")
    assert settings.undocumented(template, deploy, operations) == []


def test_suppressed_findings_say_why(template: Template) -> None:
    assert settings.suppressed_without_a_reason(template.text) == []
