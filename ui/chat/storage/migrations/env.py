"""What Alembic runs for an upgrade: on the connection it was handed, in one transaction."""

from alembic import context

from ui.chat.storage.tables import METADATA

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=METADATA,
    transactional_ddl=True,
)
with context.begin_transaction():
    context.run_migrations()
