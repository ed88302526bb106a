"""Trainer, schedules, checkpoints and monitoring."""
