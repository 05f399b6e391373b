"""Start-up kits: who takes part in a deployed federation, and how each reaches the coordinator.

A kit is a folder that the engine starts from. There are three kinds: the coordinator's
(``weft serve KIT``), a site's (``weft join KIT``) and a submitter's (``weft submit KIT``). Each
holds a certificate of the federation's own authority, the key to it, and the engine's settings.
No secret of `weft.crypto.keys` ever lies in a kit.

- `federation_plan`: reading ``federation.toml``;
- `certificates`: the authority, and what it signs;
- `nvflare_settings_of_kit`: a kit's settings for the engine;
- `provisioning`: making the kits of a federation, and of those who join later;
- `certificate_requests`: keys that are made on a site and never leave it;
  `complete_kit_with_own_key`: kits completed or renewed with them;
  `keyless_kit_archive`: how kits without keys travel;
- `coordinator_move_letter`: letters of the authority that say where the coordinator is now;
- `kit_folder`: an installed kit, opened to start from it.

::

    KIT/startup/   fed_server.json | fed_client.json | fed_admin.json, certificate, key, rootCA.pem
    KIT/local/     resources.json, authorization.json, comm_config.json, log_config.json
    KIT/transfer/  what the engine brings back (coordinator, submitter)
    KIT/weft/      what Weft keeps; KIT/weft/engine/ has the coordinator's storage of jobs
"""
