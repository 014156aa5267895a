"""Search over texts, the token ids of conversations, and presets."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

# The index keeps no text of its own, so what leaves it has to be handed to it once more. A message
# is in it exactly while its state is not 'writing'. New messages are added to it by whoever inserts
# them, many at once: a trigger would make the index write its parts out after each.
_TRIGGERS = (
    """CREATE TRIGGER message_search_changed AFTER UPDATE OF text, state ON messages
    WHEN old.state <> 'writing' OR new.state <> 'writing' BEGIN
        INSERT INTO message_search (message_search, rowid, text)
            SELECT 'delete', old.key, old.text WHERE old.state <> 'writing';
        INSERT INTO message_search (rowid, text)
            SELECT new.key, new.text WHERE new.state <> 'writing';
    END""",
    """CREATE TRIGGER message_search_removed AFTER DELETE ON messages
    WHEN old.state <> 'writing' BEGIN
        INSERT INTO message_search (message_search, rowid, text)
            VALUES ('delete', old.key, old.text);
    END""",
)


def upgrade() -> None:
    _create_search_index()
    op.create_table(
        "transcripts",
        sa.Column(
            "message_key",
            sa.Integer,
            sa.ForeignKey("messages.key", ondelete="CASCADE"),
            primary_key=True,
        ),
        sa.Column("digest", sa.LargeBinary, nullable=False),
        sa.Column("token_ids", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "presets",
        sa.Column("person", sa.Text, primary_key=True),
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("settings", sa.Text, nullable=False),
    )


def _create_search_index() -> None:
    op.execute(
        "CREATE VIRTUAL TABLE message_search USING fts5(text, content='', tokenize='trigram')"
    )
    for trigger in _TRIGGERS:
        op.execute(trigger)
    op.execute(
        "INSERT INTO message_search (rowid, text) "
        "SELECT key, text FROM messages WHERE state <> 'writing'"
    )
