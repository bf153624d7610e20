"""Alembic's entry: runs on the connection that `runyard.db.migrate` opened, inside its transaction."""

from alembic import context

from runyard.db.tables import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    transaction_per_migration=False,
    render_as_batch=False,
)
context.run_migrations()
