"""Images without a container engine: the files of the wheel, of its dependencies and of this machine's Python, as OCI.

    python -m deploy.image dist/pykai-0.2.0-py3-none-any.whl dist/images.tar

`make image` does this where no engine answers; where one does, the Dockerfile is used, which has a better base. The
same sources on the same machine give the same bytes. The archive can be loaded (`docker load`, `skopeo copy
oci-archive:...`) and pushed.
"""
