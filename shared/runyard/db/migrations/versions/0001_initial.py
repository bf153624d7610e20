"""Runs, messages, inputs, invocations, calls, workers, manifests.

Revision ID: 0001
Revises:
"""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table('agent_manifests',
    sa.Column('agent', sa.Text(), nullable=False),
    sa.Column('version', sa.Text(), nullable=False),
    sa.Column('manifest', sa.JSON(none_as_null=True), nullable=False),
    sa.Column('first_seen', sa.BigInteger(), nullable=False),
    sa.Column('last_seen', sa.BigInteger(), nullable=False),
    sa.PrimaryKeyConstraint('agent', 'version', name=op.f('pk_agent_manifests'))
    )
    op.create_table('workers',
    sa.Column('id', sa.Text(), nullable=False),
    sa.Column('beat', sa.BigInteger(), nullable=False),
    sa.Column('host', sa.Text(), nullable=False),
    sa.Column('slots', sa.Integer(), nullable=False),
    sa.Column('queues', sa.JSON(none_as_null=True), nullable=False),
    sa.Column('agents', sa.JSON(none_as_null=True), nullable=False),
    sa.Column('started_at', sa.BigInteger(), nullable=False),
    sa.PrimaryKeyConstraint('id', name=op.f('pk_workers'))
    )
    op.create_table('agent_runs',
    sa.Column('id', sa.Text(), nullable=False),
    sa.Column('tenant_id', sa.Text(), nullable=False),
    sa.Column('user_id', sa.Text(), nullable=False),
    sa.Column('agent', sa.Text(), nullable=False),
    sa.Column('agent_version', sa.Text(), nullable=True),
    sa.Column('queue', sa.Text(), nullable=False),
    sa.Column('session_id', sa.Text(), nullable=True),
    sa.Column('title', sa.Text(), nullable=True),
    sa.Column('metadata', sa.JSON(none_as_null=True), nullable=False),
    sa.Column('status', sa.Text(), nullable=False),
    sa.Column('worker_id', sa.Text(), nullable=True),
    sa.Column('generation', sa.Integer(), nullable=False),
    sa.Column('rank', sa.BigInteger(), nullable=False),
    sa.Column('invocation_id', sa.Text(), nullable=False),
    sa.Column('cancel_requested', sa.Boolean(), nullable=False),
    sa.Column('error', sa.JSON(none_as_null=True), nullable=True),
    sa.Column('steps', sa.Integer(), nullable=False),
    sa.Column('last_seq', sa.Integer(), nullable=False),
    sa.Column('usage', sa.JSON(none_as_null=True), nullable=False),
    sa.Column('cost', sa.JSON(none_as_null=True), nullable=False),
    sa.Column('created_at', sa.BigInteger(), nullable=False),
    sa.Column('last_activity_at', sa.BigInteger(), nullable=False),
    sa.CheckConstraint("status IN ('idle', 'queued', 'running', 'waiting', 'completed', 'failed', 'cancelled')", name=op.f('ck_agent_runs_status')),
    sa.CheckConstraint("worker_id IS NULL OR status = 'running'", name=op.f('ck_agent_runs_worker')),
    sa.ForeignKeyConstraint(['worker_id'], ['workers.id'], name=op.f('fk_agent_runs_worker_id')),
    sa.PrimaryKeyConstraint('id', name=op.f('pk_agent_runs'))
    )
    op.create_index('ix_agent_runs_claim', 'agent_runs', ['queue', 'agent', 'tenant_id', 'rank', 'id'], unique=False, postgresql_where=sa.text("status = 'queued'"), sqlite_where=sa.text("status = 'queued'"))
    op.create_index('ix_agent_runs_owner', 'agent_runs', ['tenant_id', 'user_id', 'last_activity_at', 'id'], unique=False)
    op.create_index('ix_agent_runs_running_tenant', 'agent_runs', ['tenant_id'], unique=False, postgresql_where=sa.text("status = 'running'"), sqlite_where=sa.text("status = 'running'"))
    op.create_index('ix_agent_runs_worker', 'agent_runs', ['worker_id'], unique=False, postgresql_where=sa.text('worker_id IS NOT NULL'), sqlite_where=sa.text('worker_id IS NOT NULL'))
    op.create_index('uq_agent_runs_session', 'agent_runs', ['tenant_id', 'agent', 'user_id', 'session_id'], unique=True)
    op.create_table('agent_calls',
    sa.Column('run_id', sa.Text(), nullable=False),
    sa.Column('assistant_seq', sa.Integer(), autoincrement=False, nullable=False),
    sa.Column('index', sa.Integer(), autoincrement=False, nullable=False),
    sa.Column('invocation_id', sa.Text(), nullable=False),
    sa.Column('call_id', sa.Text(), nullable=False),
    sa.Column('name', sa.Text(), nullable=False),
    sa.Column('idempotent', sa.Boolean(), nullable=False),
    sa.Column('state', sa.Text(), nullable=False),
    sa.Column('content', sa.JSON(none_as_null=True), nullable=True),
    sa.Column('is_error', sa.Boolean(), nullable=True),
    sa.Column('started_at', sa.BigInteger(), nullable=True),
    sa.Column('finished_at', sa.BigInteger(), nullable=True),
    sa.CheckConstraint("state IN ('planned', 'started', 'finished')", name=op.f('ck_agent_calls_state')),
    sa.ForeignKeyConstraint(['run_id'], ['agent_runs.id'], name=op.f('fk_agent_calls_run_id')),
    sa.PrimaryKeyConstraint('run_id', 'assistant_seq', 'index', name=op.f('pk_agent_calls'))
    )
    op.create_table('agent_inputs',
    sa.Column('id', sa.Text(), nullable=False),
    sa.Column('run_id', sa.Text(), nullable=False),
    sa.Column('invocation_id', sa.Text(), nullable=False),
    sa.Column('position', sa.Integer(), nullable=False),
    sa.Column('opens', sa.Boolean(), nullable=False),
    sa.Column('content', sa.JSON(none_as_null=True), nullable=False),
    sa.Column('folded_in_seq', sa.Integer(), nullable=True),
    sa.Column('created_at', sa.BigInteger(), nullable=False),
    sa.ForeignKeyConstraint(['run_id'], ['agent_runs.id'], name=op.f('fk_agent_inputs_run_id')),
    sa.PrimaryKeyConstraint('id', name=op.f('pk_agent_inputs')),
    sa.UniqueConstraint('run_id', 'position', name=op.f('uq_agent_inputs_run_id_position'))
    )
    op.create_index('ix_agent_inputs_unfolded', 'agent_inputs', ['run_id', 'position'], unique=False, postgresql_where=sa.text('folded_in_seq IS NULL'), sqlite_where=sa.text('folded_in_seq IS NULL'))
    op.create_table('agent_invocations',
    sa.Column('id', sa.Text(), nullable=False),
    sa.Column('run_id', sa.Text(), nullable=False),
    sa.Column('stream_id', sa.Text(), nullable=False),
    sa.Column('request_id', sa.Text(), nullable=False),
    sa.Column('status', sa.Text(), nullable=False),
    sa.Column('roles', sa.JSON(none_as_null=True), nullable=False),
        sa.Column('options', sa.JSON(none_as_null=True), nullable=False),
    sa.Column('steps', sa.Integer(), nullable=False),
    sa.Column('usage', sa.JSON(none_as_null=True), nullable=False),
    sa.Column('cost', sa.JSON(none_as_null=True), nullable=False),
    sa.Column("deaths", sa.JSON(none_as_null=True), nullable=False),
    sa.Column('redis_run_id', sa.Text(), nullable=True),
    sa.Column("frame_base", sa.BigInteger(), nullable=True),
    sa.Column('result', sa.JSON(none_as_null=True), nullable=True),
    sa.Column('error', sa.JSON(none_as_null=True), nullable=True),
    sa.Column('last_frame', sa.BigInteger(), nullable=True),
    sa.Column('last_seq', sa.Integer(), nullable=True),
    sa.Column('stream_closed', sa.Boolean(), nullable=False),
    sa.Column('created_at', sa.BigInteger(), nullable=False),
    sa.Column('started_at', sa.BigInteger(), nullable=True),
    sa.Column('settled_at', sa.BigInteger(), nullable=True),
    sa.CheckConstraint("status IN ('idle', 'queued', 'running', 'waiting', 'completed', 'failed', 'cancelled')", name=op.f('ck_agent_invocations_status')),
    sa.ForeignKeyConstraint(['run_id'], ['agent_runs.id'], name=op.f('fk_agent_invocations_run_id')),
    sa.PrimaryKeyConstraint('id', name=op.f('pk_agent_invocations')),
    sa.UniqueConstraint('stream_id', name=op.f('uq_agent_invocations_stream_id'))
    )
    op.create_index('ix_agent_invocations_run', 'agent_invocations', ['run_id', 'created_at', 'id'], unique=False)
    op.create_index('ix_agent_invocations_unclosed', 'agent_invocations', ['settled_at'], unique=False, postgresql_where=sa.text('settled_at IS NOT NULL AND NOT stream_closed'), sqlite_where=sa.text('settled_at IS NOT NULL AND stream_closed = 0'))
    op.create_table('agent_messages',
    sa.Column('run_id', sa.Text(), nullable=False),
    sa.Column('seq', sa.Integer(), autoincrement=False, nullable=False),
    sa.Column('invocation_id', sa.Text(), nullable=False),
    sa.Column('role', sa.Text(), nullable=False),
    sa.Column('content', sa.JSON(none_as_null=True), nullable=False),
    sa.Column('model', sa.Text(), nullable=True),
    sa.Column('usage', sa.JSON(none_as_null=True), nullable=True),
    sa.Column('cost', sa.JSON(none_as_null=True), nullable=True),
    sa.Column('stop_reason', sa.Text(), nullable=True),
    sa.Column('duration_ms', sa.Integer(), nullable=True),
    sa.Column('first_frame', sa.BigInteger(), nullable=True),
    sa.Column('last_frame', sa.BigInteger(), nullable=True),
    sa.Column('created_at', sa.BigInteger(), nullable=False),
    sa.CheckConstraint("role IN ('user', 'assistant')", name=op.f('ck_agent_messages_role')),
    sa.ForeignKeyConstraint(['run_id'], ['agent_runs.id'], name=op.f('fk_agent_messages_run_id')),
    sa.PrimaryKeyConstraint('run_id', 'seq', name=op.f('pk_agent_messages'))
    )


def downgrade() -> None:
    op.drop_table('agent_messages')
    op.drop_index('ix_agent_invocations_unclosed', table_name='agent_invocations', postgresql_where=sa.text('settled_at IS NOT NULL AND NOT stream_closed'), sqlite_where=sa.text('settled_at IS NOT NULL AND stream_closed = 0'))
    op.drop_index('ix_agent_invocations_run', table_name='agent_invocations')
    op.drop_table('agent_invocations')
    op.drop_index('ix_agent_inputs_unfolded', table_name='agent_inputs', postgresql_where=sa.text('folded_in_seq IS NULL'), sqlite_where=sa.text('folded_in_seq IS NULL'))
    op.drop_table('agent_inputs')
    op.drop_table('agent_calls')
    op.drop_index('uq_agent_runs_session', table_name='agent_runs')
    op.drop_index('ix_agent_runs_worker', table_name='agent_runs', postgresql_where=sa.text('worker_id IS NOT NULL'), sqlite_where=sa.text('worker_id IS NOT NULL'))
    op.drop_index('ix_agent_runs_running_tenant', table_name='agent_runs', postgresql_where=sa.text("status = 'running'"), sqlite_where=sa.text("status = 'running'"))
    op.drop_index('ix_agent_runs_owner', table_name='agent_runs')
    op.drop_index('ix_agent_runs_claim', table_name='agent_runs', postgresql_where=sa.text("status = 'queued'"), sqlite_where=sa.text("status = 'queued'"))
    op.drop_table('agent_runs')
    op.drop_table('workers')
    op.drop_table('agent_manifests')
