"""The tables, as SQLAlchemy knows them. Migrations make them; a test compares the two.

A conversation's messages are a tree: `parent_key` points up, `active_child_key` says which child
the path goes through, `active_root_key` of the conversation which first question. A deleted message
stays in the tree, hidden, so that what is below it keeps its place.
"""

from __future__ import annotations

from sqlalchemy import (
    Boolean,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    text,
)

METADATA = MetaData()

CONVERSATIONS = Table(
    "conversations",
    METADATA,
    Column("key", Integer, primary_key=True),
    Column("conversation_id", Text, nullable=False, unique=True),
    Column("person", Text, nullable=False),
    Column("title", Text, nullable=False),
    Column("is_titled_by_person", Boolean, nullable=False),
    Column("settings", Text, nullable=False),  # JSON
    Column("is_pinned", Boolean, nullable=False),
    Column("is_archived", Boolean, nullable=False),
    Column("created_s", Float, nullable=False),
    Column("updated_s", Float, nullable=False),
    Column("deleted_s", Float),
    Column("active_root_key", Integer),
    Index("ix_conversations_person", "person", "updated_s"),
    Index("ix_conversations_deleted", "deleted_s", sqlite_where=text("deleted_s IS NOT NULL")),
)

MESSAGES = Table(
    "messages",
    METADATA,
    Column("key", Integer, primary_key=True),
    Column("message_id", Text, nullable=False, unique=True),
    Column(
        "conversation_key",
        Integer,
        ForeignKey("conversations.key", ondelete="CASCADE"),
        nullable=False,
    ),
    Column("parent_key", Integer, ForeignKey("messages.key")),
    Column("active_child_key", Integer),
    Column("role", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("revision", Integer, nullable=False),
    Column("created_s", Float, nullable=False),
    Column("deleted_s", Float),
    Column("is_erased", Boolean, nullable=False),  # deleted for good; only its place is left
    Column("facts", Text),  # JSON
    Column("cut", Text),  # JSON
    Column("text", Text, nullable=False),  # last: the columns before it share the row's first page
    # All that the tree needs, so that texts are read for the shown messages alone.
    Index(
        "ix_messages_tree",
        *("conversation_key", "parent_key", "active_child_key", "deleted_s", "message_id"),
    ),
    Index("ix_messages_parent", "parent_key"),
    Index("ix_messages_writing", "conversation_key", sqlite_where=text("state = 'writing'")),
    Index("ix_messages_deleted", "deleted_s", sqlite_where=text("deleted_s IS NOT NULL")),
)

SECRETS = Table(
    "secrets",
    METADATA,
    Column("name", Text, primary_key=True),
    Column("value", LargeBinary, nullable=False),
)

TRANSCRIPTS = Table(
    "transcripts",
    METADATA,
    Column(
        "message_key",
        Integer,
        ForeignKey("messages.key", ondelete="CASCADE"),
        primary_key=True,
    ),
    Column("digest", LargeBinary, nullable=False),
    Column("token_ids", LargeBinary, nullable=False),
)

PRESETS = Table(
    "presets",
    METADATA,
    Column("person", Text, primary_key=True),
    Column("name", Text, primary_key=True),
    Column("settings", Text, nullable=False),  # JSON
)

# A virtual table (FTS5), kept up by triggers; MetaData cannot describe it.
SEARCH_INDEX = "message_search"
