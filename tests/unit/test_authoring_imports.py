"""`from runyard import agent` is what every author's file and test pays for: it must stay cheap."""

import subprocess
import sys

HEAVY = "sqlalchemy alembic redis dramatiq pika psycopg starlette uvicorn anthropic structlog typer pydantic_settings"
HTTP_LIBRARY = "httpx2"  # the client's, which is imported when it is asked for


def test_the_public_face_imports_no_adapter():
    program = "import sys; from runyard import Content, RunContext, agent, lifespan, tool; print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert set(ran.stdout.split()).isdisjoint([*HEAVY.split(), HTTP_LIBRARY])
