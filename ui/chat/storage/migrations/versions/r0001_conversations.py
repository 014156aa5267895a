"""Conversations, their messages, and the server's secrets."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.execute(f"PRAGMA application_id = {0x48525448}")
    _create_conversations()
    _create_messages()
    op.create_table(
        "secrets",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("value", sa.LargeBinary, nullable=False),
    )


def _create_conversations() -> None:
    op.create_table(
        "conversations",
        sa.Column("key", sa.Integer, primary_key=True),
        sa.Column("conversation_id", sa.Text, nullable=False, unique=True),
        sa.Column("person", sa.Text, nullable=False),
        sa.Column("title", sa.Text, nullable=False),
        sa.Column("is_titled_by_person", sa.Boolean, nullable=False),
        sa.Column("settings", sa.Text, nullable=False),
        sa.Column("is_pinned", sa.Boolean, nullable=False),
        sa.Column("is_archived", sa.Boolean, nullable=False),
        sa.Column("created_s", sa.Float, nullable=False),
        sa.Column("updated_s", sa.Float, nullable=False),
        sa.Column("deleted_s", sa.Float),
        sa.Column("active_root_key", sa.Integer),
    )
    op.create_index("ix_conversations_person", "conversations", ["person", "updated_s"])
    op.create_index(
        "ix_conversations_deleted",
        "conversations",
        ["deleted_s"],
        sqlite_where=sa.text("deleted_s IS NOT NULL"),
    )


def _create_messages() -> None:
    op.create_table(
        "messages",
        sa.Column("key", sa.Integer, primary_key=True),
        sa.Column("message_id", sa.Text, nullable=False, unique=True),
        sa.Column(
            "conversation_key",
            sa.Integer,
            sa.ForeignKey("conversations.key", ondelete="CASCADE"),
            nullable=False,
        ),
        sa.Column("parent_key", sa.Integer, sa.ForeignKey("messages.key")),
        sa.Column("active_child_key", sa.Integer),
        sa.Column("role", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("revision", sa.Integer, nullable=False),
        sa.Column("created_s", sa.Float, nullable=False),
        sa.Column("deleted_s", sa.Float),
        sa.Column("is_erased", sa.Boolean, nullable=False),
        sa.Column("facts", sa.Text),
        sa.Column("cut", sa.Text),
        sa.Column("text", sa.Text, nullable=False),
    )
    op.create_index(
        "ix_messages_tree",
        "messages",
        ["conversation_key", "parent_key", "active_child_key", "deleted_s", "message_id"],
    )
    op.create_index("ix_messages_parent", "messages", ["parent_key"])
    op.create_index(
        "ix_messages_writing",
        "messages",
        ["conversation_key"],
        sqlite_where=sa.text("state = 'writing'"),
    )
    op.create_index(
        "ix_messages_deleted",
        "messages",
        ["deleted_s"],
        sqlite_where=sa.text("deleted_s IS NOT NULL"),
    )
