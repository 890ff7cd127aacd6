from demos.history import Said, flaws, told

ASKED: Said = {"role": "user", "text": "refund"}
CALLED: Said = {"role": "assistant", "text": "", "calls": ["call-1", "call-2"]}
FIRST: Said = {"role": "tool", "text": "done", "answers": "call-1"}
SECOND: Said = {"role": "tool", "text": "done", "answers": "call-2"}
REPLIED: Said = {"role": "assistant", "text": "Refunded.", "calls": []}


def test_calls_answered_in_any_order_are_no_flaw() -> None:
    assert flaws([ASKED, CALLED, SECOND, FIRST, REPLIED, ASKED]) == []


def test_a_call_passed_by_the_next_message_is_a_flaw() -> None:
    assert flaws([ASKED, CALLED, FIRST, ASKED, SECOND]) == [
        "call-2 was called and never answered",
        "a result for call-2, which was not called",
    ]


def test_a_call_left_open_at_the_end_is_a_flaw() -> None:
    assert flaws([ASKED, CALLED, SECOND]) == ["call-1 was called and never answered"]


def test_a_result_given_twice_is_a_flaw() -> None:
    assert flaws([ASKED, CALLED, FIRST, SECOND, FIRST]) == ["a result for call-1, which was not called"]


def test_it_is_told_on_one_line() -> None:
    assert told([ASKED, CALLED, FIRST, REPLIED]) == (
        "user: refund · assistant: (calls call-1, call-2) · tool: done · assistant: Refunded."
    )
