"""The backend on the control plane: binding spaces, rights, exports."""
