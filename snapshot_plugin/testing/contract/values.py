"""Values survive a round trip: unknown fields, unusual text, large numbers, and large sizes."""
# ruff: noqa: S101, D102 — a test suite: its names are its docstrings

from __future__ import annotations

from functools import cache

from snapshot_plugin.model.content import ToolCallBlock, UnknownBlock
from snapshot_plugin.model.snapshot import Message, SessionSnapshot
from snapshot_plugin.testing.build import make_message, make_snapshot
from snapshot_plugin.testing.contract.stage import Opener, Stage

__all__ = ["Values"]

_LONG = 100_000
_HUGE = 20_000_000


def _size(full: int, loop: str) -> int:
    """The full size on one event loop, a small one on the other, which runs the same code."""
    return full if loop == "asyncio" else full // 10


@cache
def _session_of(count: int) -> SessionSnapshot:
    return make_snapshot(messages=[{"role": "user", "content": f"{number}"} for number in range(count)])


class Values(Stage):
    """A snapshot is stored and loaded exactly, or the save raises an error."""

    async def _round_trip(self, opened: Opener, snapshot: SessionSnapshot) -> SessionSnapshot:
        await opened().save(snapshot)
        loaded = await opened().load(snapshot.session_id)
        assert loaded == snapshot
        assert loaded.raw() == snapshot.raw()
        return loaded

    async def test_fields_and_blocks_of_unknown_kinds_round_trip(self, opened: Opener) -> None:
        loaded = await self._round_trip(
            opened,
            SessionSnapshot.model_validate(
                {
                    **make_snapshot("a").raw(),
                    "from_the_future": {"nested": [1, {"x": None}]},
                    "config": {"cwd": "/", "later": True},
                    "messages": [
                        {"role": "user", "content": [{"type": "hologram", "rays": [1, 2]}], "mood": "good"},
                        {"role": "user", "content": [{"type": "text", "words": "misfit"}]},
                        {"role": "assistant", "content": [{"no": "type"}]},
                    ],
                }
            ),
        )
        assert isinstance(loaded.messages[0].content[0], UnknownBlock)
        assert (loaded.model_extra or {})["from_the_future"] == {"nested": [1, {"x": None}]}

    async def test_an_unknown_field_can_change_and_go(self, opened: Opener) -> None:
        store, known = opened(), make_snapshot("a")
        versions = [*(known.with_stored({"extra": value}) for value in ({"n": 1}, {"n": 2}, None)), known]
        for version in versions:
            await store.save(version)
        assert [await opened().load("session", at=seq) for seq in (1, 2, 3, 4)] == versions

    async def test_any_text_round_trips(self, opened: Opener) -> None:
        texts = [
            "",
            "\n",
            "a\r\nb\n\n",
            "\0\x1b",
            "\u2028\u2029\x85",
            '"\\"',
            "🦉 é \U0010ffff",
            "\ufeff",
            "\uffff",
        ]
        loaded = await self._round_trip(opened, make_snapshot(*texts, title="\n", memory={"\n": "\n"}))
        assert [message.text for message in loaded.messages] == texts

    async def test_lone_surrogates_round_trip(self, opened: Opener) -> None:
        store, broken = opened(), "cut off: \ud83d"
        versions = [
            make_snapshot(broken, title=broken, memory={broken: broken, "é": "fine"}),
            make_snapshot(broken, "é", title="é", memory={broken: "é", "é": broken}),
            make_snapshot("é", broken, memory={"é": "fine again"}),
            make_snapshot("é", broken, memory={"é": broken}),
            make_snapshot("é", broken),
        ]
        for version in versions:
            await store.save(version)
            assert await opened().load("session") == version
        assert [await opened().load("session", at=seq) for seq in range(1, 6)] == versions
        assert (await opened().check()).ok

    async def test_an_id_may_be_long(self, opened: Opener) -> None:
        one, other = "thread/" + "Ä" * 600, "thread/" + "Ä" * 599 + "B"
        store = opened()
        await store.save(make_snapshot("one", session_id=one))
        await store.save(make_snapshot("other", session_id=other))
        await store.save(make_snapshot("one", "more", session_id=one))

        fresh = opened()
        assert {meta.session_id for meta in await fresh.list()} == {one, other}
        assert await fresh.load(one) == make_snapshot("one", "more", session_id=one)
        assert (await fresh.walk(one, [1]))[0] == make_snapshot("one", session_id=one)
        assert [meta.session_id for meta in await fresh.history(other)] == [other]
        assert (await fresh.check()).ok
        trashed = await fresh.delete(one)
        assert {meta.session_id for meta in await opened().list()} == {other}
        await opened().undelete(trashed.token)
        assert await opened().load(one) == make_snapshot("one", "more", session_id=one)

    async def test_numbers_keep_their_kind(self, opened: Opener) -> None:
        store = opened()
        numbers = [1, 1.0, True, 0, 0.0, -0.0, False, None, 2**70, -(2**70), 1e308, 5e-324, 0.1]
        for number in numbers:
            assert (await store.save(make_snapshot(memory={"n": number}))).written
        for seq, number in enumerate(numbers, start=1):
            found = (await opened().load("session", at=seq)).memory["n"]
            assert (type(found), repr(found)) == (type(number), repr(number))

    async def test_names_like_those_of_the_format_round_trip(self, opened: Opener) -> None:
        names = ["value", "section", '],"value":', 'a"],"value":1}', "message", "meta", "{}", "[]", " ", "\\"]
        store = opened()
        full = make_snapshot("a", memory={name: {name: name} for name in names}, plugins=dict.fromkeys(names))
        await store.save(full)
        assert await opened().load("session") == full
        for count in range(len(names)):
            fewer = make_snapshot("a", memory=dict.fromkeys(names[:count], count))
            await store.save(fewer)
            assert await opened().load("session") == fewer

    async def test_a_huge_tool_output_is_kept_whole_and_noticed(
        self, opened: Opener, anyio_backend_name: str
    ) -> None:
        output = "0123456789abcdef" * (_size(_HUGE, anyio_backend_name) // 16)
        call = ToolCallBlock(tool_call_id="c", title="cat", status="completed", raw_output=output)
        store = opened()

        ref = await store.save(make_snapshot(messages=[Message(role="assistant", content=(call,))]))

        assert ref.notices
        block = (await opened().load("session")).messages[0].content[0]
        assert isinstance(block, ToolCallBlock)
        assert block.raw_output == output

    async def test_a_hundred_thousand_messages_are_kept(self, opened: Opener, anyio_backend_name: str) -> None:
        count = _size(_LONG, anyio_backend_name)
        store, session = opened(), _session_of(count)
        whole = await store.save(session)
        longer = await store.save(session.append(make_message("one more")))

        messages = (await opened().load("session")).messages

        assert len(messages) == count + 1
        assert all(message.text == f"{number}" for number, message in enumerate(messages[:count]))
        assert messages[-1].text == "one more"
        assert longer.size_bytes < whole.size_bytes / 20
