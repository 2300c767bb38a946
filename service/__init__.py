"""The Flask front door: admission, approvals, history and streams over HTTP."""
